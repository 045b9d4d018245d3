"""The default places of configuration and data."""

import os
from pathlib import Path

DATA_DIR = Path(".mathrag")


def config_file() -> Path:
    """Return the path of the settings' YAML file, which need not exist: `MATHRAG_CONFIG`, or `mathrag.yaml` here."""
    return Path(os.environ.get("MATHRAG_CONFIG", "mathrag.yaml"))
