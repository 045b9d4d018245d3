"""A stack for one run: configured by its preset, with data below the run's folder, stopped at the end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from mathrag.cli import stack
from mathrag.cli.up import up
from mathrag.stack import control, privacy

CONFIGURATION = "mathrag.yaml"
DATA = "stack"


@contextmanager
def own_stack(folder: Path, configuration: dict[str, Any], *, keep: bool) -> Iterator[None]:
    """Run the stack of `folder`, with environment variables by which commands find it.

    A stack that already runs there with the same configuration is used and left running.
    """
    data = folder / DATA
    with _set_environment(MATHRAG_CONFIG=str(folder / CONFIGURATION), MATHRAG_DATA_DIR=str(data)):
        changed = _write(folder / CONFIGURATION, configuration)
        if changed and control.find_holder(data) is not None:
            stack.down(data_dir=data)
        if control.find_holder(data) is not None:
            yield
            return
        try:
            up(detach=True, data_dir=data, port=0)
            yield
        finally:
            if not keep:
                stack.down(data_dir=data)


def _write(file: Path, configuration: dict[str, Any]) -> bool:
    """Write the settings file, and return whether its content changed."""
    text = yaml.safe_dump(configuration, sort_keys=False)
    if file.is_file() and file.read_text("utf-8") == text:
        return False
    privacy.create_closed(file.parent)
    file.write_text(text, "utf-8")
    return True


@contextmanager
def _set_environment(**variables: str) -> Iterator[None]:
    """Set environment variables for this process and its children, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
