"""The shipped embeddings, read once: they take 20 MiB."""

import pytest

from shared.models.embedding import StaticEmbedder
from shared.settings import EMBEDDINGS


@pytest.fixture(scope="package")
def embedder() -> StaticEmbedder:
    return StaticEmbedder(EMBEDDINGS)
