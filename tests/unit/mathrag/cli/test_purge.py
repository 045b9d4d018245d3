"""`mathrag purge` before it reaches a database: what it asks for, and what it refuses."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mathrag.cli import purge
from mathrag.cli.main import app
from mathrag.client.errors import Failed
from shared.runtime.purge import JobContent
from shared.settings import Settings

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
JOB = JobContent(
    id=1, job="6b0c", name="first", state="completed", chain="aa", ended_at=NOON, samples=5, steps=10, outcomes=5,
    records=5, events=4, idempotency_keys=0,
)  # fmt: skip


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls: list[list[str]] = []

    async def chosen(*_: object) -> list[JobContent]:
        return [JOB]

    async def deleting(_url: str, jobs: list[JobContent], *_: object) -> purge.Purged:
        calls.append([job.name for job in jobs])
        return purge.Purged(dry_run=False, jobs=jobs)

    monkeypatch.setenv("MATHRAG_OWNER_URL", "postgresql+asyncpg://owner@nowhere/x")
    monkeypatch.setattr(purge, "_find_jobs", chosen)
    monkeypatch.setattr(purge, "_purge", deleting)
    return calls


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["purge", *arguments])
    return result.exit_code, result.output


def test_nothing_is_purged_by_default(deleted: list[list[str]]) -> None:
    code, output = run()
    assert (code, deleted) == (2, [])
    assert "--dry-run" in output


def test_nobody_at_the_terminal_confirms_nothing(deleted: list[list[str]]) -> None:
    for arguments in (["first"], ["first", "--json"]):
        code, output = run(*arguments)
        assert (code, deleted) == (2, [])
        assert "--yes" in output


def test_a_dry_run_only_shows_what_would_go(deleted: list[list[str]]) -> None:
    code, output = run("first", "--dry-run")
    assert (code, deleted) == (0, [])
    assert "first" in output
    assert "nothing was deleted" in output
    assert json.loads(run("first", "--dry-run", "--json")[1])["jobs"][0]["samples"] == 5


def test_yes_purges_without_asking(deleted: list[list[str]]) -> None:
    code, output = run("first", "--yes")
    assert (code, deleted) == (0, [["first"]])
    assert "Deleted 1 job." in output


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T14:00+02:00", NOON),
        (None, None),
    ],
)
def test_a_date_is_midnight_utc_unless_it_says_more(given: str | None, expected: datetime | None) -> None:
    assert purge._parse_date("--before", given) == expected


def test_a_number_of_days_counts_back_from_now() -> None:
    found = purge._parse_date("--before", "30d")
    assert found is not None
    assert timedelta(days=30) <= datetime.now(UTC) - found < timedelta(days=31)


def test_what_is_no_date_is_refused(deleted: list[list[str]]) -> None:
    code, output = run("--before", "yesterday")
    assert (code, deleted) == (2, [])
    assert "--before" in output
    assert "30d" in output


def test_only_the_owner_may_purge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="owner"):
        purge.owner_url(Settings(database_url="postgresql+asyncpg://app@nowhere/x"), None)
    with pytest.raises(Failed, match="no PostgreSQL of a stack"):
        purge.owner_url(Settings(data_dir=tmp_path), None)
