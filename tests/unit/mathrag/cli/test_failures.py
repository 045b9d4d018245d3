"""How commands end: every kind of error has an exit code, and the documentation has the table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mathrag.cli import output
from mathrag.cli.output import CODES, Exit
from mathrag.client.errors import failure
from shared import errors
from shared.settings import REPOSITORY
from tests.unit.cases import named
from tests.unit.commands import Server, mathrag, refuses

HANDS = Path(output.__file__).parent.parent
ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def raised() -> Iterator[str]:
    for file in HANDS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Failed"), args=[ast.Constant(value=str(kind)), *_]):
                    yield kind


def test_every_error_of_the_service_has_an_exit_code() -> None:
    assert [error for error in ERRORS if error.kind not in CODES] == []


def test_every_error_of_the_command_line_has_an_exit_code() -> None:
    kinds = set(raised())
    assert kinds
    assert kinds <= set(CODES)


def test_the_table_of_exit_codes_is_documented_as_it_is() -> None:
    text = (REPOSITORY / "docs" / "reference" / "exit-codes.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]*\| ([^|]*)\|$", text, re.MULTILINE)
    documented = {int(code): set(re.findall(r"`(\w+)`", kinds)) for code, kinds in rows}
    assert documented == {code: {kind for kind, given in CODES.items() if given is code} for code in Exit}


def test_a_problem_of_the_server_ends_with_the_code_of_its_kind(server: Server) -> None:
    wrong = {}
    for kind, code in CODES.items():
        server(refuses(400, kind, "no", "do"))
        ended = named(mathrag, "job", "show", kind, "--json")
        said = ended.exit_code, named(msgspec.json.decode, ended.stderr), ended.stdout
        if said != (code, {"error": {"kind": kind, "message": "no", "hint": "do"}}, ""):
            wrong[kind] = said
    assert wrong == {}


def test_a_kind_that_nobody_knows_is_internal(server: Server) -> None:
    server(refuses(400, "brand_new", "?"))
    assert mathrag("job", "show", "first").exit_code == Exit.INTERNAL


def test_an_unforeseen_error_is_a_defect_with_its_name() -> None:
    assert (failure(KeyError("x")).kind, failure(KeyError("x")).message) == ("internal", "KeyError: 'x'")


def test_settings_that_are_wrong_are_the_users_to_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.setenv("MATHRAG_PORT", "many")
    ended = mathrag("job", "list")
    assert ended.exit_code == Exit.INVALID
    assert "MATHRAG_PORT" in ended.stderr
    assert "mathrag config validate" in ended.stderr


def test_a_settings_file_that_is_wrong_is_said_where_no_stack_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text("port: many\n")
    monkeypatch.setenv("MATHRAG_CONFIG", "wrong.yaml")
    ended = mathrag("job", "list")
    assert (ended.exit_code, "wrong.yaml, line 1" in ended.stderr) == (Exit.INVALID, True)
