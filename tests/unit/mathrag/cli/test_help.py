"""Help pages: placeholders of values, headings, and one text for one option."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from mathrag.cli.main import ENTRIES, PANELS, app
from tests.unit.commands import mathrag

COMMON = ("--json", "--force", "--yes", "--wait", "--set", "--model", "--print-curl", "--idempotency-key")
"""Options that mean the same in every command."""
DIFFERENT = {
    *(("mathrag model connect", option) for option in COMMON),
    *(("mathrag purge", option) for option in COMMON),
    ("mathrag job measure", "--set"),
    ("mathrag rules mine", "--wait"),
}
"""Options of one command that differ: it takes other parameters, or waits for something other than a job."""


def list_commands(command: Any, path: tuple[str, ...] = ("mathrag",)) -> Iterator[tuple[str, Any, Any]]:
    context = command.make_context(path[-1], [], resilient_parsing=True)
    for name in getattr(command, "commands", ()):
        _, inner, _ = command.resolve_command(context, [name])
        yield from list_commands(inner, (*path, name))
    yield " ".join(path), command, context


@pytest.fixture(scope="module")
def parameters() -> list[tuple[str, Any, str]]:
    commands = list_commands(get_command(app))
    return [
        (path, parameter, parameter.display_type_rich(ctx=context))
        for path, command, context in commands
        for parameter in command.get_params(context)
        if not getattr(parameter, "hidden", False)
    ]


def test_every_value_has_a_word_in_capitals_or_its_choices_and_flags_have_none(
    parameters: list[tuple[str, Any, str]],
) -> None:
    assert len(parameters) > 300
    wrong = []
    for path, parameter, placeholder in parameters:
        if parameter.param_type_name == "argument":
            good = re.fullmatch(r"[A-Z][A-Z=]*", parameter.metavar)
        elif parameter.is_flag:
            good = placeholder == ""
        else:
            good = "|" in placeholder or re.fullmatch(r"(generate=)?[A-Z][A-Z=:]*", placeholder)
        if not good:
            wrong.append((path, parameter.opts, placeholder))
    assert wrong == []


def test_an_option_of_many_commands_has_one_text(parameters: list[tuple[str, Any, str]]) -> None:
    texts = defaultdict(set)
    for path, parameter, _ in parameters:
        if parameter.opts[0] in COMMON and (path, parameter.opts[0]) not in DIFFERENT:
            texts[parameter.opts[0]].add(parameter.help)
    assert {option: found for option, found in texts.items() if len(found) != 1} == {}
    assert set(texts) == set(COMMON)


def test_an_option_that_differs_in_one_command_says_how(parameters: list[tuple[str, Any, str]]) -> None:
    texts = {(path, parameter.opts[0]): parameter.help for path, parameter, _ in parameters}
    assert "of the group `metrics`" in texts["mathrag job measure", "--set"]
    assert "until mining has ended" in texts["mathrag rules mine", "--wait"]


def test_commands_are_listed_under_headings() -> None:
    page = mathrag("--help").stdout
    assert [heading for heading in PANELS if f"─ {heading} ─" not in page] == []
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) == sum(map(len, PANELS.values()))


def test_a_page_shows_placeholders_and_no_type_names() -> None:
    page = mathrag("job", "compare", "--help").stdout
    assert "{JOB}..." in page
    assert "--baseline" in page
    assert "<str>" not in page
    assert "<bool>" not in page
