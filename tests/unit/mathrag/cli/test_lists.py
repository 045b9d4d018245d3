"""Lists of the client that repeat what the server has, which the client does not import."""

from typing import get_args

from mathrag.cli import catalog, job, rules
from mathrag.report_lines import MATHEMATICAL
from shared import calls
from shared.calls import Amie, TLogic
from shared.rag.provenance import Ending
from shared.shapes import KINDS, Kind
from tests.unit.commands import command_of


def test_the_endings_are_those_of_the_server_in_its_order() -> None:
    assert list(job.ENDINGS) == [each.value for each in Ending]


def test_an_ending_of_a_later_server_is_the_last_column() -> None:
    assert job.list_ending_columns({"correct": {"new": 1, "failed": 2}}) == ["failed", "new"]


def test_the_limits_of_miners_are_those_of_the_server() -> None:
    assert {name: tuple(limits) for name, limits in rules.MINERS.items()} == {
        str(miner.__struct_config__.tag): miner.__struct_fields__ for miner in (Amie, TLogic)
    }


def test_the_kinds_of_plugins_are_those_of_the_server() -> None:
    assert set(get_args(catalog.Kind)) == {each.value for each in Kind}


def test_the_mathematical_graders_are_those_of_the_server() -> None:
    assert MATHEMATICAL == calls.MATHEMATICAL


def test_what_can_be_labelled_is_named_in_the_help() -> None:
    named = next(each for each in command_of("label", "create").params if each.name == "what")
    assert all(what in (named.help or "") for what in KINDS)  # type: ignore[attr-defined]
