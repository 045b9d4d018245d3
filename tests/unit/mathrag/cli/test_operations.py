"""Commands for whoever runs a service: keys, the systemd unit, purging, plug-ins and unused indexes."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from configparser import RawConfigParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import msgspec
import pytest
from msgspec import UNSET
from typer.testing import Result

from mathrag.cli.output import Exit
from mathrag.client.errors import Failed
from mathrag.errors import Conflict
from mathrag_gate.cli import purge
from shared.runtime import archiving
from shared.runtime import purge as runtime_purge
from shared.runtime.purge import JobContent
from shared.settings import Settings
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.keys import ApiKey
from tests.unit.commands import Server, mathrag, says

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ALICE = ApiKey(
    name="alice", prefix="mrg_1a2b3c4d", scopes=["read", "submit"], weight=2, project=None, valid=True,
    created_at=NOON, expires_at=None, revoked_at=None, used_at=NOON,
)  # fmt: skip


# `mathrag key`: what is printed where, and what is refused before the database is asked.


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []

    async def create_key(_database: object, *arguments: Any, **share: Any) -> str:
        seen.append(("create", *arguments, share))
        return "mrg_the_key"

    async def change_key(_database: object, *arguments: Any) -> tuple[int, str | None]:
        seen.append(("set", *arguments))
        return 3, None

    async def rotate_key(_database: object, *arguments: Any) -> str:
        seen.append(("rotate", *arguments))
        return "mrg_another_key"

    async def revoke_keys(_database: object, *arguments: Any) -> list[str]:
        seen.append(("revoke", *arguments))
        return ["mrg_1a2b3c4d"]

    async def list_keys(_database: object) -> list[ApiKey]:
        return [ALICE]

    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql+asyncpg://nobody@127.0.0.1:1/none")
    for function in (create_key, change_key, rotate_key, revoke_keys, list_keys):
        monkeypatch.setattr(keys, function.__name__, function)
    return seen


def key(*arguments: str) -> Result:
    return mathrag("key", *arguments)


def test_a_new_key_is_the_only_thing_on_stdout(asked: list[Any]) -> None:
    share = ("--weight", "3", "--project", "thesis")
    done = key("create", "alice", "--scope", "read", "--scope", "submit", "--expires", "90d", *share)
    assert (done.exit_code, done.stdout) == (0, "mrg_the_key\n")
    assert "it is shown only once" in done.stderr
    assert asked == [("create", "local", "alice", {Scope.READ, Scope.SUBMIT}, timedelta(days=90), asked[0][-1])]
    assert asked[0][-1] == {"weight": 3, "project": "thesis"}


@pytest.mark.parametrize(("keys", "said"), [("auto", True), ("required", False)])
def test_a_key_for_a_stack_that_asks_for_none_says_so(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, keys: str, said: bool
) -> None:
    monkeypatch.setenv("MATHRAG_ACCESS__KEYS", keys)
    assert ("does not require keys" in key("create", "alice", "--scope", "read").stderr) == said
    assert asked


def test_a_key_has_no_expiry_and_the_weight_one_unless_asked_for(asked: list[Any]) -> None:
    key("create", "alice", "--scope", "operate")
    assert asked[0][-2:] == (None, {"weight": 1, "project": None})


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (("--weight", "3"), (3, UNSET)),
        (("--no-project",), (None, None)),
        (("--project", "thesis", "--weight", "2"), (2, "thesis")),
    ],
)
def test_what_is_not_named_stays_unchanged(asked: list[Any], options: Sequence[str], change: Sequence[Any]) -> None:
    assert key("set", "alice", *options).stdout == "alice has weight 3 and no project.\n"
    assert asked == [("set", "local", "alice", *change)]
    assert json.loads(key("set", "alice", *options, "--json").stdout) == {"name": "alice", "weight": 3, "project": None}


@pytest.mark.parametrize("options", [(), ("--project", "thesis", "--no-project")])
def test_a_change_of_nothing_or_of_two_kinds_is_a_usage_error(asked: list[Any], options: Sequence[str]) -> None:
    assert key("set", "alice", *options).exit_code == 2
    assert not asked


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
    assert head.split() == ["NAME", "PREFIX", "SCOPES", "WEIGHT", "PROJECT", "STATE", "EXPIRES", "USED"]
    assert line.split() == ["alice", "mrg_1a2b3c4d", "read,submit", "2", "-", "valid", "-", "2026-11-21", "12:00"]


@pytest.mark.parametrize("span", ["90", "d", "1y", "-1d", "1.5h", ""])
def test_a_span_of_time_that_is_none_is_a_usage_error(asked: list[Any], span: str) -> None:
    done = key("create", "alice", "--scope", "read", f"--expires={span}")
    assert done.exit_code == 2
    assert f"error: --expires: {span!r} is not a duration" in done.stderr
    assert "fix: write a number and m, h or d, such as 90d" in done.stderr
    assert not asked


def test_a_refusal_of_the_storage_has_its_exit_code(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def taken(*_: Any, **_share: Any) -> str:
        raise Conflict("there is already a key 'alice'", hint="mathrag key rotate alice")

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


# `mathrag service install`: the text of the unit, and what is refused.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("SUDO_USER", raising=False)
    return tmp_path


def print_unit(*options: str) -> str:
    ended = mathrag("service", "install", "--print", *options)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def parse_unit(text: str) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_stack_in_the_foreground_and_stops_it_in_order(folder: Path) -> None:
    unit = parse_unit(print_unit("--data-dir", "data", "--port", "18241"))
    run = unit["Service"]
    assert run["ExecStart"] == (
        f'"{sys.executable}" "-P" "-m" "mathrag.cli.main" "up" "--data-dir" "{folder}/data" "--port" "18241"'
    )
    assert run["WorkingDirectory"] == str(folder)
    assert (run["KillMode"], run["OOMPolicy"], run["UMask"]) == ("mixed", "continue", "0077")
    assert (run["Restart"], run["RestartPreventExitStatus"]) == (
        "on-failure", f"{Exit.USAGE.value} {Exit.INVALID.value}",
    )  # fmt: skip
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_system_runs_the_stack_as_the_user_who_called_sudo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    assert parse_unit(print_unit())["Service"]["User"] == "alice"
    assert "User" not in parse_unit(print_unit("--user"))["Service"]


def test_a_unit_of_a_user_belongs_to_no_target_of_the_system(folder: Path) -> None:
    unit = print_unit("--user")
    assert parse_unit(unit)["Install"]["WantedBy"] == "default.target"
    assert "network-online" not in unit


def test_characters_that_systemd_replaces_are_written_so_that_it_does_not(folder: Path) -> None:
    run = parse_unit(print_unit("--data-dir", '50% "$HOME" \\n'))["Service"]
    assert f'"--data-dir" "{folder}/50%% \\"$$HOME\\" \\\\n"' in run["ExecStart"]


def test_a_folder_with_a_line_break_is_refused(folder: Path) -> None:
    ended = mathrag("service", "install", "--print", "--data-dir", "a\nExecStartPre=/bin/false")
    assert (ended.exit_code, "not allowed in a systemd unit" in ended.stderr, ended.stdout) == (Exit.INVALID, True, "")


def test_paths_of_the_configuration_are_in_the_unit_and_secrets_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    monkeypatch.setenv("MATHRAG_SERVICE_KEY", "topsecret")
    ended = mathrag("service", "install", "--user")
    unit = (folder / "config" / "systemd" / "user" / "mathrag.service").read_text()
    assert f'Environment="MATHRAG_CONFIG={folder}/other.yaml"' in unit
    assert 'Environment="PATH=/usr/bin:/bin"' in unit
    assert "topsecret" not in unit + ended.output
    assert "does not set MATHRAG_SERVICE_KEY" in ended.stderr


def test_a_unit_is_written_once_and_replaced_only_when_that_is_asked_for(folder: Path) -> None:
    ended = mathrag("service", "install", "--user", "--json")
    written = Path(json.loads(ended.stdout)["unit"])
    assert written == folder / "config" / "systemd" / "user" / "mathrag.service"
    before = written.read_text()
    again = mathrag("service", "install", "--user", "--port", "9000")
    assert (again.exit_code, "--force" in again.stderr) == (Exit.CONFLICT, True)
    assert written.read_text() == before
    forced = mathrag("service", "install", "--user", "--port", "9000", "--force")
    assert "systemctl --user enable --now mathrag" in forced.stdout
    assert '"--port" "9000"' in written.read_text()


def test_systemd_accepts_the_unit(folder: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / "mathrag.service"
    unit.write_text(print_unit("--data-dir", '50% "$HOME"'))
    done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr}")
    assert (done.returncode, "mathrag.service" in done.stderr) == (0, False), done.stderr


# `mathrag purge` before it reaches a database: what it asks for, and what it refuses.

JOB = JobContent(
    id=1, job="6b0c", name="first", state="completed", chain="aa", ended_at=NOON, samples=5, steps=10, outcomes=5,
    records=5, events=4, idempotency_keys=0, archived_parts=0,
)  # fmt: skip


@pytest.fixture
def outdated(monkeypatch: pytest.MonkeyPatch) -> list[datetime | None]:
    """Before when jobs have to have ended that are looked for; there is one."""
    asked: list[datetime | None] = []

    async def find_outdated(_owner: object, before: datetime | None, *_: object, **__: object) -> list[JobContent]:
        asked.append(before)
        return [JOB]

    monkeypatch.setenv("MATHRAG_OWNER_URL", "postgresql+asyncpg://owner@nowhere/x")
    monkeypatch.setattr(runtime_purge, "find_jobs", AsyncMock(return_value=[]))
    monkeypatch.setattr(runtime_purge, "find_outdated", find_outdated)
    return asked


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    async def purge_job(_owner: object, job: JobContent, _actor: str) -> None:
        names.append(job.name)

    monkeypatch.setenv("MATHRAG_OWNER_URL", "postgresql+asyncpg://owner@nowhere/x")
    monkeypatch.setattr(runtime_purge, "find_jobs", AsyncMock(return_value=[JOB]))
    monkeypatch.setattr(runtime_purge, "purge", purge_job)
    monkeypatch.setattr(runtime_purge, "forget_questions", AsyncMock(return_value=0))
    monkeypatch.setattr(runtime_purge, "remove_unused", AsyncMock(return_value=None))
    return names


def purging(*arguments: str) -> tuple[int, str]:
    ended = mathrag("purge", *arguments)
    return ended.exit_code, ended.output


def test_nothing_is_purged_by_default(deleted: list[str]) -> None:
    code, output = purging()
    assert (code, deleted) == (2, [])
    assert "--dry-run" in output


def test_nobody_at_the_terminal_confirms_nothing(deleted: list[str]) -> None:
    for arguments in (["first"], ["first", "--json"]):
        code, output = purging(*arguments)
        assert (code, deleted) == (2, [])
        assert "--yes" in output


def test_a_dry_run_only_shows_what_would_go(deleted: list[str]) -> None:
    code, output = purging("first", "--dry-run")
    assert (code, deleted) == (0, [])
    assert "first" in output
    assert "nothing was deleted" in output
    assert json.loads(purging("first", "--dry-run", "--json")[1])["jobs"][0]["samples"] == 5


def test_yes_purges_without_asking(deleted: list[str]) -> None:
    code, output = purging("first", "--yes")
    assert (code, deleted) == (0, ["first"])
    assert "Deleted 1 job." in output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--before", "2026-11-21"), datetime(2026, 11, 21, tzinfo=UTC)),
        (("--before", "2026-11-21T14:00+02:00"), NOON),
        (("--keep-last", "3"), None),
    ],
)
def test_a_date_is_midnight_utc_unless_it_says_more(
    outdated: list[datetime | None], options: tuple[str, str], expected: datetime | None
) -> None:
    assert purging(*options, "--dry-run")[0] == 0
    assert outdated == [expected]


def test_a_number_of_days_counts_back_from_now(outdated: list[datetime | None]) -> None:
    assert purging("--before", "30d", "--dry-run")[0] == 0
    assert outdated[0] is not None
    assert timedelta(days=30) <= datetime.now(UTC) - outdated[0] < timedelta(days=31)


def test_what_is_no_date_is_refused(deleted: list[str]) -> None:
    code, output = purging("--before", "yesterday")
    assert (code, deleted) == (2, [])
    assert "--before" in output
    assert "30d" in output


@pytest.fixture
def compressed(deleted: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    async def archive_job(_owner: object, job: JobContent, _actor: str) -> archiving.ArchivedRows:
        names.append(job.name)
        return archiving.ArchivedRows(samples=5, parts=1, bytes=2_100_000)

    monkeypatch.setattr(archiving, "archive", archive_job)
    large = msgspec.structs.replace(JOB, samples=1000)
    monkeypatch.setattr(runtime_purge, "find_jobs", AsyncMock(return_value=[large]))
    return names


def test_jobs_are_archived_once_they_are_selected_and_confirmed(compressed: list[str], deleted: list[str]) -> None:
    for arguments in ([], ["first"], ["first", "--json"]):
        assert mathrag("job", "archive", *arguments).exit_code == 2
    assert "nothing was changed" in mathrag("job", "archive", "first", "--dry-run").output
    assert compressed == []
    done = mathrag("job", "archive", "first", "--yes")
    assert (done.exit_code, compressed) == (0, ["first"])
    assert "Archived 1 job in 2.1 MB" in done.output
    assert json.loads(mathrag("job", "archive", "first", "--yes", "--json").stdout)["bytes"] == 2_100_000
    assert deleted == []


def test_a_job_without_steps_in_the_tables_is_not_archived(
    compressed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = msgspec.structs.replace(JOB, steps=0)
    monkeypatch.setattr(runtime_purge, "find_jobs", AsyncMock(return_value=[without]))
    done = mathrag("job", "archive", "first", "--yes")
    assert (done.exit_code, compressed) == (0, [])
    assert "Archived 0 jobs in 0.0 MB" in done.output


def test_a_job_whose_archive_would_save_little_is_left_out(
    compressed: list[str], outdated: list[datetime | None]
) -> None:
    done = mathrag("job", "archive", "--before", "90d", "--yes")
    assert (done.exit_code, compressed) == (0, [])
    assert "Left out: 1 job of fewer than 100 samples." in done.output
    assert len(outdated) == 1


def test_only_the_owner_may_purge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="owner"):
        purge.owner_url(Settings(database_url="postgresql+asyncpg://app@nowhere/x"), None)
    with pytest.raises(Failed, match="no PostgreSQL server is running in"):
        purge.owner_url(Settings(data_dir=tmp_path), None)


# `mathrag plugin`: a package to begin with, and what is said of those that are installed.

LISTED = [
    {
        "kind": "pipeline", "name": "vote", "distribution": "mathrag-vote", "version": "1.0", "hash": "ab" * 32,
        "state": "ready", "detail": "", "fix": "", "jobs": [],
    },
    {
        "kind": "pipeline", "name": "gone", "distribution": "mathrag-gone", "version": "1.0", "hash": "cd" * 32,
        "state": "missing", "detail": "it is not installed", "fix": "pip install mathrag-gone==1.0", "jobs": ["first"],
    },
]  # fmt: skip


def test_the_list_says_of_a_bad_one_what_is_wrong_who_waits_and_what_to_do(server: Server) -> None:
    server(says(LISTED))
    said = mathrag("plugin").output
    assert said.splitlines()[1].split() == ["pipeline", "vote", "mathrag-vote", "1.0", "abababababab", "ready"]
    assert said.splitlines()[-1] == (
        "pipeline gone: it is not installed; jobs wait for it: first; fix: pip install mathrag-gone==1.0"
    )


def test_a_new_package_names_its_entry_point(tmp_path: Path) -> None:
    assert mathrag("plugin", "new", "pipeline", "best-of-two", "--out", str(tmp_path)).exit_code == 0
    project = tomllib.loads((tmp_path / "mathrag-best-of-two" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mathrag-best-of-two"
    assert project["entry-points"] == {"mathrag.pipelines": {"best-of-two": "mathrag_best_of_two:run"}}


def test_a_program_learns_where_the_new_package_is(tmp_path: Path) -> None:
    written = json.loads(mathrag("plugin", "new", "grader", "units", "--out", str(tmp_path), "--json").stdout)
    assert (written["kind"], written["name"]) == ("grader", "units")
    assert (Path(written["folder"]) / "pyproject.toml").is_file()


@pytest.mark.parametrize("name", ["Best", "best_of", "-best", "best-", "a" * 42, "class", "../up", "a b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    done = mathrag("plugin", "new", "pipeline", "--out", str(tmp_path), "--", name)
    assert done.exit_code != 0
    assert "is not a valid plug-in name" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["template", "rubric"])
def test_a_kind_that_is_a_file_has_no_package(tmp_path: Path, kind: str) -> None:
    done = mathrag("plugin", "new", kind, "mine", "--out", str(tmp_path))
    assert done.exit_code == Exit.INVALID
    assert f"a {kind} needs no package: it is a single file" in done.output
    assert f"plugins.{kind}s" in done.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mathrag-vote").mkdir()
    assert "exists" in mathrag("plugin", "new", "pipeline", "vote", "--out", str(tmp_path)).output
    assert not list((tmp_path / "mathrag-vote").iterdir())


# `mathrag corpus orphans`: unused indexes are listed, and deleted where that is confirmed.

UNUSED = "mathrag-dense-51c9"


@pytest.fixture
def requested(server: Server) -> list[httpx2.Request]:
    return server(lambda asked: says({"orphans": [UNUSED], "deleted": asked.method == "DELETE"})(asked))


@pytest.mark.parametrize(
    ("options", "method", "said"),
    [([], "GET", f"unused: {UNUSED}\n"), (["--delete", "--yes"], "DELETE", f"deleted: {UNUSED}\n")],
)
def test_orphans_are_listed_and_deleted_only_when_told(
    requested: list[httpx2.Request], options: list[str], method: str, said: str
) -> None:
    ended = mathrag("corpus", "orphans", *options)
    assert (ended.exit_code, ended.stdout) == (0, said)
    assert [(each.method, each.url.path) for each in requested] == [(method, "/v1/indexes/orphans")]


def test_the_answer_is_given_as_json(requested: list[httpx2.Request]) -> None:
    ended = mathrag("corpus", "orphans", "--json")
    assert json.loads(ended.stdout) == {"orphans": [UNUSED], "deleted": False}


def test_nothing_is_deleted_without_a_yes(requested: list[httpx2.Request]) -> None:
    ended = mathrag("corpus", "orphans", "--delete")
    assert (ended.exit_code, "--yes" in ended.stderr) == (2, True)
    assert [each.method for each in requested] == ["GET"]
