"""A service of a run's own: configured by its preset, data below its folder, stopped at the end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from mathrag.cli import stack
from mathrag.cli.up import up
from mathrag.stack import lock

CONFIGURATION = "mathrag.yaml"
DATA = "stack"


@contextmanager
def own_stack(folder: Path, configuration: dict[str, Any], *, keep: bool) -> Iterator[None]:
    """The service that belongs to `folder`, and the environment in which commands find it.

    One that runs there already with the same configuration is used, and left as it was.
    """
    data = folder / DATA
    with _environment(MATHRAG_CONFIG=str(folder / CONFIGURATION), MATHRAG_DATA_DIR=str(data)):
        changed = _write(folder / CONFIGURATION, configuration)
        if changed and lock.holder(data) is not None:
            stack.down(data_dir=data)
        if lock.holder(data) is not None:
            yield
            return
        try:
            up(detach=True, data_dir=data, port=0)
            yield
        finally:
            if not keep:
                stack.down(data_dir=data)


def _write(file: Path, configuration: dict[str, Any]) -> bool:
    """Whether it was written anew."""
    said = yaml.safe_dump(configuration, sort_keys=False)
    if file.is_file() and file.read_text("utf-8") == said:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(said, "utf-8")
    return True


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Settings are read from the environment, by this process and by those that it starts."""
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
