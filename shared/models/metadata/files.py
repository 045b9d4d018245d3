"""A model on disk: one GGUF file, or a folder as the hub has it."""

from pathlib import Path

from shared.contracts.architecture import Architecture
from shared.models.metadata import gguf, huggingface


def architecture(path: Path) -> Architecture:
    """What lies there says of its model.

    Raises:
        MetadataError: it cannot be used; the message names the file.
    """
    return huggingface.architecture(path) if path.is_dir() else gguf.architecture(path)
