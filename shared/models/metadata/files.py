"""Read the architecture of a model on disk: a GGUF file, or a folder in the form of the Hugging Face hub."""

from pathlib import Path

from shared.contracts.architecture import Architecture
from shared.models.metadata import gguf, huggingface


def read_architecture(path: Path) -> Architecture:
    """Read the architecture of the model at `path`.

    Raises:
        MetadataError: it cannot be read; the message names the file.
    """
    return huggingface.read_architecture(path) if path.is_dir() else gguf.read_architecture(path)
