"""The pages of a report, from the files of its `data/`; memory does not grow with the samples, but for their times."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mathrag.client.audits import audited
from mathrag.report import overview, source
from mathrag.report.commands import again
from mathrag.report.drilldown import entry
from mathrag.report.measured import Measured
from mathrag.report.source import Sample, Source
from shared.pages.pages import Pages, when
from shared.pages.report_lines import lines

SIZE = 200
"""Samples of a page: some megabytes, which every browser filters and sorts at once."""
NAMED = ("judge", "generate")
"""Roles that a submission names models for; the others are built in, or the corpus has them."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One page of samples."""

    file: str
    first: int
    last: int
    """Items, by position in the dataset."""
    endings: dict[str, int]


def write(out: Path, jobs: Sequence[Path], title: str, comparison: Any = None, experiment: Any = None) -> Path:
    """Write all pages of the jobs whose files are in these folders; returns the page to open.

    Args:
        out: the report's folder, which holds `data/`.
        jobs: folders of `data/`, one for each job.
        title: of the report.
        comparison: what GET /v1/comparison says of the jobs, where it was asked.
        experiment: what GET /v1/experiments/{experiment}/report says, where the jobs are one.

    Raises:
        Unavailable: the extra `report` is not installed.
        Invalid: a job's chain is broken, or its files do not belong together.
    """
    _kept(out / "data", comparison=comparison, experiment=experiment)
    pages = Pages()
    told = []
    for folder in jobs:
        read = Source(folder)
        _job(pages, out / "jobs" / read.slug, read, title)
        told.append(read)
    drawn = [
        pages.drawn(figure, out / "figures") for figure in overview.figures([each.report for each in told], experiment)
    ]
    pages.render(
        "frozen/index.html",
        index := out / "index.html",
        title=title,
        jobs=sorted(map(_listed, told), key=lambda job: -(job["report"]["accuracy"]["value"] or 0.0)),
        period=_period(told),
        headline=overview.headline([each.report for each in told], comparison, experiment),
        notes=list(overview.notes([each.report for each in told], experiment)),
        drawn=drawn,
        comparisons=list(overview.comparisons(comparison, experiment)),
        cells=experiment["rows"] if experiment else [],
        slugs={each.report["id"]: each.slug for each in told},
    )
    return index


def _kept(data: Path, **said: Any) -> None:
    data.mkdir(parents=True, exist_ok=True)
    for name, value in said.items():
        if value is not None:
            (data / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))


def _job(pages: Pages, folder: Path, read: Source, title: str) -> None:
    measured = Measured()
    listed = list(_samples(pages, folder, read, measured, title))
    drawn = [pages.drawn(figure, folder / "figures") for figure in measured.figures(read.report)]
    parameters = msgspec.json.format(msgspec.json.encode(read.report["settings"]["params"]), indent=2).decode()
    pages.render(
        "frozen/job.html", folder / "index.html", title=title, report=read.report, audit=read.audit, drawn=drawn,
        lines=list(lines(read.report)), listed=listed, size=SIZE, parameters=parameters,
        provenance=list(_provenance(read)), command=_command(read),
    )  # fmt: skip


def _samples(pages: Pages, folder: Path, read: Source, measured: Measured, title: str) -> Iterator[Told]:
    total = read.report["request_counts"]["total"] - read.report["request_counts"]["in_progress"]
    models = _models(read)
    for number, some in enumerate(source.pages(read.samples(), SIZE), 1):
        for sample in some:
            measured.add(sample)
        page = _told(number, some)
        pages.render(
            "frozen/samples.html", folder / page.file, title=title, name=read.report["name"], page=page,
            entries=[entry(sample, models) for sample in some],
            earlier=_file(number - 1) if number > 1 else None,
            later=_file(number + 1) if number * SIZE < total else None,
        )  # fmt: skip
        yield page


def _told(number: int, some: Sequence[Sample]) -> Told:
    endings = Counter(sample.row.ending or sample.row.state for sample in some)
    first, last = some[0].row.index, some[-1].row.index
    return Told(file=_file(number), first=first, last=last, endings=dict(sorted(endings.items())))


def _file(number: int) -> str:
    return f"samples-{number:03}.html"


def _models(read: Source) -> Mapping[str, str]:
    named = read.report["settings"]["models"]
    return {pin["hash"]: named[role]["name"] for role, pin in read.record.pins.items() if role in named}


def _listed(read: Source) -> dict[str, Any]:
    return {
        "slug": read.slug,
        "report": read.report,
        "audited": audited(read.audit["violations"]),
        "command": _command(read),
    }


def _command(read: Source) -> str:
    models = read.report["settings"]["models"]
    return again(read.job, read.record, {role: models[role]["name"] for role in NAMED if role in models})


def _provenance(read: Source) -> Iterator[tuple[str, object]]:
    record, code = read.record, read.record.code
    yield "job", record.job
    yield "pipeline hash", record.pipeline_hash
    yield "dataset", f"{record.dataset.name}, {record.dataset.hash}"
    yield "corpus", record.corpus and f"{record.corpus.name}, {record.corpus.hash}"
    yield "commit", code.get("commit") and f"{code['commit']}{' with changes' if code.get('dirty') else ''}"
    yield "version", code.get("version")
    yield "image", code.get("image")
    yield "schema", code.get("schema")
    yield "configuration", code.get("configuration")
    for kind, index in (code.get("indexes") or {}).items():
        yield f"{kind} index", f"signature {index['signature']}, file {index['file_hash']}"
    yield "gate's decision", record.prepared
    yield "chain", read.chain and f"{read.chain}: every link was recomputed when this page was written"
    yield "audit", audited(read.audit["violations"])


def _period(told: Sequence[Source]) -> str:
    ended = sorted({when(each.report["ended_at"]) for each in told if each.report["ended_at"]})
    return f"{ended[0]} to {ended[-1]}" if len(ended) > 1 else "".join(ended)
