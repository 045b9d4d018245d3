"""Doubles of programs of others, each written once."""

from collections.abc import Callable
from functools import cache, partial

import pytest

from tests.doubles.model_server import program


@pytest.fixture(scope="package")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    return cache(partial(program, tmp_path_factory.mktemp("programs")))
