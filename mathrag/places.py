"""The default places of configuration and data."""

import os
from pathlib import Path

DATA_DIR = Path(".mathrag")


def config_file() -> Path:
    """Return the path of the settings' YAML file, which need not exist: `MATHRAG_CONFIG`, or `mathrag.yaml` here."""
    return Path(os.environ.get("MATHRAG_CONFIG", "mathrag.yaml"))


def find_existing_folder(folder: Path) -> Path:
    """Return `folder`, or the nearest folder above it that exists, as an absolute path."""
    folder = folder.absolute()
    return folder if folder.exists() else find_existing_folder(folder.parent)
