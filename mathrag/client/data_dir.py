"""Find the data directory without checking all settings."""

import os
from pathlib import Path
from typing import Any

from shared.places import DATA_DIR, config_file

PREFIX = "mathrag_"
NO_SETTINGS = frozenset(f"{PREFIX}{name}" for name in ("data_dir", "config", "url", "api_key"))
"""Variables that do not require checking all settings to find the data directory."""


def data_dir() -> Path:
    """Return `data_dir` of the settings, from environment, secret files, configuration file or default, in this order.

    Checking all settings takes longer than most commands that only have to find the service; they are checked where the
    environment holds others. A file is read for this one alone.
    """
    environment = {name.lower(): value for name, value in os.environ.items()}
    if any(name.startswith(PREFIX) and name not in NO_SETTINGS for name in environment):
        return _load_checked()
    if (given := environment.get("mathrag_data_dir")) is not None:
        return Path(given)
    return _read_from_file() if config_file().exists() else DATA_DIR


def is_data_dir_named() -> bool:
    """Tell whether the environment names the data directory."""
    return any(name.lower() == "mathrag_data_dir" and value for name, value in os.environ.items())


def _read_from_file() -> Path:
    try:
        text = config_file().read_text("utf-8")
        return Path(_read_data_dir(text)) if "data_dir" in text else DATA_DIR
    except (OSError, ValueError):
        return _load_checked()


def _read_data_dir(text: str) -> str:
    """Return the data directory that the file sets, or the default; raise ValueError if it is not text."""
    import yaml

    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError from error
    folder = content.get("data_dir", str(DATA_DIR)) if isinstance(content, dict) else None
    if not isinstance(folder, str):
        raise ValueError  # noqa: TRY004 - the caller has all settings checked, which say what is wrong
    return folder


def _load_checked() -> Path:
    """Return the data directory from all settings, whose errors name what is wrong."""
    from shared.settings import load

    return load().data_dir
