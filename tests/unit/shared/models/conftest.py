"""The shipped embeddings, read once: they take 60 MiB."""

import pytest

from shared.models.difficulty import EMBEDDINGS
from shared.models.embedding import StaticEmbedder


@pytest.fixture(scope="package")
def embedder() -> StaticEmbedder:
    return StaticEmbedder(EMBEDDINGS)
