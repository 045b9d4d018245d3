"""A job as the API shows it: with addresses of all that can be asked about it."""

from collections.abc import Iterable, Sequence

import msgspec

from shared.pipelines import registry
from shared.storage import jobs, pages


class Links(msgspec.Struct, frozen=True, kw_only=True, rename={"itself": "self"}):
    """Where to go from a job."""

    itself: str
    events: str
    samples: str
    results: str
    report: str
    provenance: str


class JobView(jobs.Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job, and where to go from it."""

    links: Links
    warnings: tuple[str, ...] = ()
    """Only in the answer to its submission: what the submitter should know before waiting for it."""


def view(job: jobs.Job, warnings: Sequence[str] = ()) -> JobView:
    """`job` with its links."""
    at = f"/v1/jobs/{job.id}"
    parts = ("events", "samples", "results", "report", "provenance")
    links = Links(itself=at, **{part: f"{at}/{part}" for part in parts})
    return JobView(links=links, warnings=tuple(warnings), **msgspec.structs.asdict(job))


def edited(pipelines: Iterable[str]) -> list[str]:
    """A warning for each source file of these pipelines that was edited after this process had imported it."""
    changed = {change.file: change for name in pipelines for change in registry.changed_files(name)}
    return [
        f"{change.file} was edited after the service had imported it (imported {_short(change.imported)}, on disk"
        f" {_short(change.on_disk)}): what was imported runs, and the job stores its hash; restart the service"
        " (`mathrag down`, `mathrag up`) to run the file"
        for change in changed.values()
    ]


def _short(hash_: str | None) -> str:
    return hash_[:12] if hash_ else "no such file"


def page(found: pages.Page[jobs.Job]) -> pages.Page[JobView]:
    """Every job of a page with its links."""
    return pages.Page(data=[view(job) for job in found.data], next_cursor=found.next_cursor)
