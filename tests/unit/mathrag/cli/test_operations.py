"""`mathrag key`: what is printed where, and what is refused before the database is asked."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mathrag.cli.main import app
from shared.errors import Conflict
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.keys import ApiKey

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALICE = ApiKey(
    name="alice", prefix="mrg_1a2b3c4d", scopes=["read", "submit"], valid=True, created_at=NOW, expires_at=None,
    revoked_at=None, used_at=NOW,
)  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []

    async def create_key(_database: object, *arguments: Any) -> str:
        seen.append(("create", *arguments))
        return "mrg_the_key"

    async def rotate_key(_database: object, *arguments: Any) -> str:
        seen.append(("rotate", *arguments))
        return "mrg_another_key"

    async def revoke_keys(_database: object, *arguments: Any) -> list[str]:
        seen.append(("revoke", *arguments))
        return ["mrg_1a2b3c4d"]

    async def list_keys(_database: object) -> list[ApiKey]:
        return [ALICE]

    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql+asyncpg://nobody@127.0.0.1:1/none")
    for function in (create_key, rotate_key, revoke_keys, list_keys):
        monkeypatch.setattr(keys, function.__name__, function)
    return seen


def key(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["key", *arguments])


def test_a_new_key_is_the_only_thing_on_stdout(asked: list[Any]) -> None:
    done = key("create", "alice", "--scope", "read", "--scope", "submit", "--expires", "90d")
    assert (done.exit_code, done.stdout) == (0, "mrg_the_key\n")
    assert "cannot be shown again" in done.stderr
    assert asked == [("create", "local", "alice", {Scope.READ, Scope.SUBMIT}, timedelta(days=90))]


@pytest.mark.parametrize(("keys", "said"), [("auto", True), ("required", False)])
def test_a_key_for_a_stack_that_asks_for_none_says_so(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, keys: str, said: bool
) -> None:
    monkeypatch.setenv("MATHRAG_ACCESS__KEYS", keys)
    assert ("asks for no keys" in key("create", "alice", "--scope", "read").stderr) == said
    assert asked


def test_a_key_without_expiry_has_none(asked: list[Any]) -> None:
    key("create", "alice", "--scope", "operate")
    assert asked[0][-1] is None


def test_a_key_may_be_json(asked: list[Any]) -> None:
    done = key("rotate", "alice", "--grace", "30m", "--json")
    assert json.loads(done.stdout) == {"name": "alice", "key": "mrg_another_key"}
    assert asked == [("rotate", "local", "alice", timedelta(minutes=30))]


def test_the_old_key_of_a_rotation_lives_a_day(asked: list[Any]) -> None:
    key("rotate", "alice")
    assert asked[0][-1] == timedelta(hours=24)


def test_a_revocation_says_which_keys_ended(asked: list[Any]) -> None:
    assert key("revoke", "alice").stdout == "Revoked mrg_1a2b3c4d.\n"


def test_the_list_shows_everything_but_keys(asked: list[Any]) -> None:
    head, line = key("list").stdout.splitlines()
    assert head.split() == ["NAME", "PREFIX", "SCOPES", "STATE", "EXPIRES", "USED"]
    assert line.split() == ["alice", "mrg_1a2b3c4d", "read,submit", "valid", "-", "2026-11-21", "12:00"]


@pytest.mark.parametrize("span", ["90", "d", "1y", "-1d", "1.5h", ""])
def test_a_span_of_time_that_is_none_is_a_usage_error(asked: list[Any], span: str) -> None:
    done = key("create", "alice", "--scope", "read", f"--expires={span}")
    assert done.exit_code == 2
    assert f"error: --expires: {span!r} is not a duration" in done.stderr
    assert "fix: write a number and m, h or d, such as 90d" in done.stderr
    assert not asked


def test_a_refusal_of_the_storage_has_its_exit_code(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def taken(*_: Any) -> str:
        raise Conflict("there is a key 'alice'", hint="mathrag key rotate alice")

    monkeypatch.setattr(keys, "create_key", taken)
    done = key("create", "alice", "--scope", "read")
    assert done.exit_code == 5
    assert "fix: mathrag key rotate alice" in done.stderr


def test_without_a_database_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MATHRAG_DATABASE_URL", raising=False)
    done = key("list", "--data-dir", str(tmp_path))
    assert done.exit_code == 6
    assert "mathrag up" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_database_that_does_not_answer_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql+asyncpg://a:s3cret@127.0.0.1:1/none")
    done = key("list")
    assert done.exit_code == 6
    assert "MATHRAG_DATABASE_URL" in done.stderr
    assert "s3cret" not in done.output + done.stderr
