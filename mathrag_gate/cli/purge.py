"""`mathrag purge`: delete jobs directly in the database as its owner; the API cannot delete."""

import asyncio
import getpass
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import typer

from mathrag.cli.output import AsJson, DataDir, Yes, confirm, print_json, print_table, report_errors
from mathrag.client.errors import Failed
from mathrag.installation import find_missing_package
from mathrag.messages import format_count
from mathrag_gate.stack import backup
from mathrag_gate.stack.backup import owner_url
from shared.runtime import archiving
from shared.runtime import purge as purging
from shared.settings import load
from shared.storage.database import Database

_DAYS = re.compile(r"(\d{1,5})d")

Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB",
        help="Job: name, id, or the first characters of the id (four or more).",
        show_default=False,
    ),
]
Before = Annotated[
    str | None,
    typer.Option(
        metavar="DATE", help="Delete jobs that ended before a date (2026-12-31), or longer ago than an age (90d)."
    ),
]
KeepLast = Annotated[int | None, typer.Option(metavar="N", min=0, help="Delete ended jobs except the newest N.")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        metavar="DATE",
        help="Delete only unused calls older than this date or age; later jobs may reuse the newer ones.",
    ),
]
Unused = Annotated[
    bool,
    typer.Option("--unused", help="Also delete datasets and corpora that no job uses, and experiments without jobs."),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Delete ended chats; with it, --before and --keep-last apply to chats alone.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what the command would delete; delete nothing.")]
HEAD = ("JOB", "NAME", "STATE", "SAMPLES", "STEPS")


class AgeFilter(NamedTuple):
    """Filter of ended jobs by age, without the newest `keep`."""

    before: datetime | None
    keep: int
    online: bool


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Deleted data, or, in a dry run, the data that would be deleted."""

    dry_run: bool
    jobs: list[purging.JobContent]
    questions: int = 0
    """Number of one-question datasets of chats."""
    experiments: list[str] = []
    datasets: list[str] = []
    corpora: list[str] = []
    removed: purging.RemovedRows | None = None


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """Archived jobs, or, in a dry run, those that would be archived."""

    dry_run: bool
    jobs: list[purging.JobContent]
    small: int
    """Number of other selected jobs, which are left out because they have fewer than 100 samples."""
    bytes: int = 0
    """Size of their archives."""
    removed: purging.RemovedRows | None = None


def purge(
    references: Jobs = None,
    before: Before = None,
    keep_last: KeepLast = None,
    chat: Chat = False,
    unused: Unused = False,
    calls_older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Permanently delete ended jobs, and the model calls that no job uses."""
    with report_errors(as_json=as_json):
        calls_before = _parse_date("--calls-older-than", calls_older_than)
        by_age = bool(before) or keep_last is not None or chat
        if not (references or by_age or calls_before or unused):
            hint = "name jobs, or select them, for example: mathrag purge --keep-last 20 --dry-run"
            raise Failed("usage", "no jobs are selected", hint)
        owner = owner_url(load(), data_dir)
        aged = AgeFilter(_parse_date("--before", before), keep_last or 0, chat) if by_age else None
        jobs = asyncio.run(_find_jobs(owner, references or [], aged))
        if not as_json:
            print_table(HEAD, [(job.job, job.name, job.state, job.samples, job.steps) for job in jobs])
        if not (dry_run or yes):
            confirm(f"Permanently delete {format_count(len(jobs), 'job')}?", as_json=as_json)
        done = Purged(dry_run=True, jobs=jobs) if dry_run else asyncio.run(_purge(owner, jobs, unused, calls_before))
        print_json(done) if as_json else _print_result(done)


async def _find_jobs(url: str, references: Sequence[str], aged: AgeFilter | None) -> list[purging.JobContent]:
    """Return the named jobs, and those that the filter selects."""
    owner = Database(url, pinned=False)
    try:
        found = await purging.find_jobs(owner, references)
        found += await purging.find_outdated(owner, aged.before, aged.keep, online=aged.online) if aged else []
    finally:
        await owner.close()
    return list({job.id: job for job in found}.values())


async def _purge(url: str, jobs: list[purging.JobContent], unused: bool, calls_before: datetime | None) -> Purged:
    owner, actor = Database(url, pinned=False), getpass.getuser()
    try:
        for job in jobs:
            await purging.purge(owner, job, actor)
        questions = await purging.forget_questions(owner)
        deleted = await purging.delete_unused(owner, actor) if unused else {}
        removed = await purging.remove_unused(owner, actor, calls_before)
    finally:
        await owner.close()
    return Purged(dry_run=False, jobs=jobs, questions=questions, removed=removed, **deleted)


def archive(
    references: Sequence[str], before: str | None, keep_last: int | None, data_dir: Path | None, *,
    preview: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Archive the selected jobs as the owner of the database, after a confirmation unless `yes`."""
    by_age = bool(before) or keep_last is not None
    if not (references or by_age):
        hint = "name jobs, or select them, for example: mathrag job archive --before 90d --dry-run"
        raise Failed("usage", "no jobs are selected", hint)
    if missing := find_missing_package("pyarrow", "mathrag-gate[parquet]"):
        raise missing
    owner = owner_url(load(), data_dir)
    aged = AgeFilter(_parse_date("--before", before), keep_last or 0, online=False) if by_age else None
    # Without steps, a job has nothing to archive, or it was archived before; then its calls may be left to delete.
    found = [job for job in asyncio.run(_find_jobs(owner, references, aged)) if job.steps]
    jobs = [job for job in found if job.samples >= archiving.FEWEST]
    small = len(found) - len(jobs)
    if not as_json:
        print_table(HEAD, [(job.job, job.name, job.state, job.samples, job.steps) for job in jobs])
    if jobs and not (preview or yes):
        confirm(f"Archive {format_count(len(jobs), 'job')}?", as_json=as_json)
    done = Archived(dry_run=True, jobs=jobs, small=small)
    if not preview:
        done = msgspec.structs.replace(done, dry_run=False, **asyncio.run(_archive(owner, jobs)))
    print_json(done) if as_json else _print_archived(done)


def _print_archived(done: Archived) -> None:
    if done.small:
        typer.echo(f"Left out: {format_count(done.small, 'job')} of fewer than {archiving.FEWEST} samples.")
    if done.dry_run:
        typer.echo(f"{format_count(len(done.jobs), 'job')} would be archived; nothing was changed.")
    else:
        calls = format_count(done.removed.calls if done.removed else 0, "call")
        typer.echo(f"Archived {format_count(len(done.jobs), 'job')} in {done.bytes / 1e6:.1f} MB; deleted {calls}.")


async def _archive(url: str, jobs: list[purging.JobContent]) -> dict[str, Any]:
    owner, actor = Database(url, pinned=False), getpass.getuser()
    try:
        moved = [await archiving.archive(owner, job, actor) for job in jobs]
        removed = await purging.remove_unused(owner, actor)
    finally:
        await owner.close()
    return {"bytes": sum(each.bytes for each in moved), "removed": removed}


def _parse_date(option: str, given: str | None) -> datetime | None:
    """Parse a date (midnight UTC), a time, or a number of days before now.

    Raises:
        Failed: the text has none of these forms.
    """
    if given is None:
        return None
    if days := _DAYS.fullmatch(given):
        return datetime.now(UTC) - timedelta(days=int(days[1]))
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        hint = "write for example 2026-12-31, 2026-12-31T08:00Z or 30d"
        raise Failed("usage", f"{option} {given} is neither a date nor an age in days", hint) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _print_result(done: Purged) -> None:
    if done.dry_run:
        typer.echo(f"{format_count(len(done.jobs), 'job')} would be deleted; nothing was deleted.")
        return
    typer.echo(f"Deleted {format_count(len(done.jobs), 'job')}.")
    for what, names in (
        ("experiments", done.experiments), ("datasets", done.datasets), ("corpora", done.corpora),
    ):  # fmt: skip
        if names:
            typer.echo(f"Deleted {what} {', '.join(names)}.")
    if removed := done.removed:
        calls, attempts = format_count(removed.calls, "call"), format_count(removed.attempts, "attempt")
        typer.echo(f"Deleted {calls} with {attempts}, {format_count(removed.documents, 'document')}.")


def delete(kind: Literal["corpus", "dataset"], name: str, data_dir: Path | None, *, yes: bool, as_json: bool) -> None:
    """Delete a corpus or dataset as the owner of the database, after a confirmation unless `yes`."""
    owner = owner_url(load(), data_dir)
    if not yes:
        confirm(f"Permanently delete {kind} {name}?", as_json=as_json)
    backup.delete(owner, kind, name)
    if as_json:
        print_json({"deleted": name, "kind": kind})
    else:
        typer.echo(f"Deleted {kind} {name}.")
