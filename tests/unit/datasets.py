"""Datasets of others, which no repository may hold: tests use those that lie beside it, in `../shared/data`."""

import pytest

from shared.settings import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where this file or folder is missing."""
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"../shared/data/{name} is not there")
