"""`mathrag purge`: what no API may do. It reaches the database itself, as the owner."""

import asyncio
import getpass
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

import msgspec
import typer

from mathrag.cli.confirm import Yes, confirm
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import DataDir
from mathrag.client.errors import Failed
from mathrag.stack.deletion import owner_url
from shared.runtime import purge as purging
from shared.runtime import retention
from shared.settings import load
from shared.storage.database import Database

_DAYS = re.compile(r"(\d{1,5})d")

Jobs = Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids or names.", show_default=False)]
Before = Annotated[str | None, typer.Option(metavar="DATE", help="Jobs that ended before 2026-12-31, or 90d ago.")]
KeepLast = Annotated[int | None, typer.Option(metavar="N", min=0, help="Ended jobs but for the newest N.")]
OlderThan = Annotated[
    str | None, typer.Option(metavar="DATE", help="Keep calls that are younger: jobs to come may ask the same.")
]
Unused = Annotated[
    bool,
    typer.Option("--unused", help="Also datasets and corpora that no job refers to, and experiments without jobs."),
]
Chat = Annotated[bool, typer.Option("--chat", help="Ended chats; with --before or --keep-last only of chats.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")]
HEAD = ("JOB", "NAME", "STATE", "SAMPLES", "STEPS")


class Aged(NamedTuple):
    """Jobs chosen by age and number."""

    before: datetime | None
    keep: int
    online: bool


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would go."""

    dry_run: bool
    jobs: list[purging.Content]
    questions: int = 0
    """One-question datasets of online jobs."""
    experiments: list[str] = []
    datasets: list[str] = []
    corpora: list[str] = []
    removed: retention.Removed | None = None


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
    """Delete ended jobs for good, and the calls that no job needs any more."""
    with reported(as_json=as_json):
        calls_before = _date("--calls-older-than", calls_older_than)
        by_age = bool(before) or keep_last is not None or chat
        if not (references or by_age or calls_before or unused):
            raise Failed("usage", "nothing is selected", hint="name jobs, or mathrag purge --keep-last 20 --dry-run")
        owner = owner_url(load(), data_dir)
        aged = Aged(_date("--before", before), keep_last or 0, chat) if by_age else None
        jobs = asyncio.run(_chosen(owner, references or [], aged))
        if not as_json:
            table(HEAD, [(job.job, job.name, job.state, job.samples, job.steps) for job in jobs])
        if not (dry_run or yes):
            confirm(f"Delete {len(jobs)} jobs for good?", as_json=as_json)
        done = Purged(dry_run=True, jobs=jobs) if dry_run else asyncio.run(_purge(owner, jobs, unused, calls_before))
        print_json(done) if as_json else _say(done)


async def _chosen(url: str, references: Sequence[str], aged: Aged | None) -> list[purging.Content]:
    """By reference, or by age and number, or none."""
    owner = Database(url, pinned=False)
    try:
        found = await purging.chosen(owner, references)
        found += await purging.outdated(owner, aged.before, aged.keep, online=aged.online) if aged else []
    finally:
        await owner.close()
    return list({job.id: job for job in found}.values())


async def _purge(url: str, jobs: list[purging.Content], unused: bool, calls_before: datetime | None) -> Purged:
    owner, actor = Database(url, pinned=False), getpass.getuser()
    try:
        for job in jobs:
            await purging.purge(owner, job, actor)
        questions = await purging.forget_questions(owner)
        deleted = await purging.delete_unused(owner, actor) if unused else {}
        removed = await retention.remove_unused(owner, actor, calls_before)
    finally:
        await owner.close()
    return Purged(dry_run=False, jobs=jobs, questions=questions, removed=removed, **deleted)


def _date(option: str, given: str | None) -> datetime | None:
    """A date (midnight UTC), a time, or so many days ago."""
    if given is None:
        return None
    if days := _DAYS.fullmatch(given):
        return datetime.now(UTC) - timedelta(days=int(days[1]))
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise Failed("usage", f"{option}: {given!r} is no date", hint="2026-12-31, 2026-12-31T08:00Z, or 30d") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _say(done: Purged) -> None:
    if done.dry_run:
        typer.echo(f"{len(done.jobs)} jobs would be deleted. Nothing was.")
        return
    typer.echo(f"Deleted {len(done.jobs)} jobs.")
    for what, names in (
        ("experiments", done.experiments), ("datasets", done.datasets), ("corpora", done.corpora),
    ):  # fmt: skip
        if names:
            typer.echo(f"Deleted {what} {', '.join(names)}.")
    if gone := done.removed:
        typer.echo(f"Deleted {gone.calls} calls with {gone.attempts} attempts, {gone.documents} documents.")
