"""The commands that pages suggest exist, with these options and arguments."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from mathrag.cli.main import app
from shared.settings import REPOSITORY

PLACES = ("shared/pages/templates/**/*.html", "services/orchestrator/web/*.py")
SUGGESTED = re.compile(r'"(mathrag [a-z][^"{}]*)"')


def list_suggestions() -> Iterator[str]:
    """Yield the commands; what a page adds behind one stands as VALUE."""
    for place in PLACES:
        for file in sorted(REPOSITORY.glob(place)):
            for found in SUGGESTED.findall(file.read_text("utf-8")):
                yield f"{found}VALUE" if found.endswith((" ", "=")) else found


def list_unread(command: str) -> list[str]:
    """Parse a command line without running it; return the words that belong to no option and no argument."""
    words = shlex.split(command)[1:]
    found: Any = get_command(app)
    context = found.context_class(found)
    while words and hasattr(found, "resolve_command"):
        name, found, words = found.resolve_command(context, words)
        context = found.context_class(found, parent=context, info_name=name)
    _, left, _ = found.make_parser(context).parse_args(words)
    return list(left)


@pytest.mark.parametrize("command", sorted(set(list_suggestions())))
def test_a_suggested_command_is_one(command: str) -> None:
    assert list_unread(command) == []


@pytest.mark.parametrize("command", ["mathrag corpus create NAME FILE", "mathrag jobs", "mathrag job list --colour"])
def test_a_wrong_command_is_found(command: str) -> None:
    said: Any
    try:
        said = list_unread(command)
    except Exception as error:  # noqa: BLE001 - of whichever library the command line uses
        said = str(error)
    assert said
