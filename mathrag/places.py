"""Default paths of the configuration and the data."""

import os
from pathlib import Path

DATA_DIR = Path(".mathrag")


def config_file() -> Path:
    """Return the path of the settings file: `MATHRAG_CONFIG`, or `mathrag.yaml` in this folder. It need not exist."""
    return Path(os.environ.get("MATHRAG_CONFIG", "mathrag.yaml"))


def find_existing_folder(folder: Path) -> Path:
    """Return `folder`, or the nearest folder above it that exists, as an absolute path."""
    folder = folder.absolute()
    return folder if folder.exists() else find_existing_folder(folder.parent)
