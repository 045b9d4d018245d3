"""Where configuration and data are, unless something else is said."""

import os
from pathlib import Path

DATA_DIR = Path(".mathrag")


def config_file() -> Path:
    """The YAML file of the settings, which need not exist: `MATHRAG_CONFIG`, else `mathrag.yaml` here."""
    return Path(os.environ.get("MATHRAG_CONFIG", "mathrag.yaml"))
