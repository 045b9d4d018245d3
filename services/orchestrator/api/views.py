"""A job as the API shows it: with addresses of all that can be asked about it."""

import msgspec

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


def view(job: jobs.Job) -> JobView:
    """`job` with its links."""
    at = f"/v1/jobs/{job.id}"
    parts = ("events", "samples", "results", "report", "provenance")
    links = Links(itself=at, **{part: f"{at}/{part}" for part in parts})
    return JobView(links=links, **msgspec.structs.asdict(job))


def page(found: pages.Page[jobs.Job]) -> pages.Page[JobView]:
    """Every job of a page with its links."""
    return pages.Page(data=[view(job) for job in found.data], next_cursor=found.next_cursor)
