"""Write the pages of a report from the files of its `data/`, one page of samples in memory at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mathrag.client.service import summarise_audit
from mathrag.report import overview, source
from mathrag.report.commands import submit_again_command
from mathrag.report.drilldown import prepare_sample
from mathrag.report.figure_data import FigureData
from mathrag.report.source import JobFiles, ReportSample
from shared.pages.formatting import format_json
from shared.pages.lines import build_lines
from shared.pages.pages import Pages, format_time

SIZE = 200
"""Samples per page: a few megabytes, which a browser filters and sorts at once."""
ROLES = ("judge", "generate")
"""Roles whose models a submission can name; the others are built in or belong to the corpus."""


class SamplesPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of samples: its file, its items and how they ended."""

    file: str
    first: int
    last: int
    """First and last item of the page, by position in the dataset."""
    endings: dict[str, int]


def write(out: Path, jobs: Sequence[Path], title: str, comparison: Any = None, experiment: Any = None) -> Path:
    """Write all pages of the jobs whose files are in these folders; returns the page to open.

    Args:
        out: the report's folder, which holds `data/`.
        jobs: folders of `data/`, one for each job.
        title: title of the report.
        comparison: answer of GET /v1/comparison for the jobs, if they were compared.
        experiment: answer of GET /v1/experiments/{experiment}/report, if the jobs are an experiment.

    Raises:
        Invalid: a job's chain is broken, or its files do not belong together.
    """
    _write_data(out / "data", comparison=comparison, experiment=experiment)
    pages = Pages()
    sources = []
    for folder in jobs:
        read = JobFiles(folder)
        _write_job(pages, out / "jobs" / read.slug, read, title)
        sources.append(read)
    drawn = [
        pages.draw(figure, out / "figures")
        for figure in overview.list_figures([each.report for each in sources], experiment)
    ]
    pages.render(
        "frozen/index.html",
        index := out / "index.html",
        title=title,
        jobs=sorted(map(_list_job, sources), key=lambda job: -(job["report"]["accuracy"]["value"] or 0.0)),
        period=_describe_period(sources),
        headline=overview.find_headline([each.report for each in sources], comparison, experiment),
        notes=list(overview.list_notes([each.report for each in sources], experiment)),
        drawn=drawn,
        comparisons=list(overview.list_comparisons(comparison, experiment)),
        cells=experiment["rows"] if experiment else [],
        slugs={each.report["id"]: each.slug for each in sources},
    )
    return index


def _write_data(data: Path, **contents: Any) -> None:
    data.mkdir(parents=True, exist_ok=True)
    for name, value in contents.items():
        if value is not None:
            (data / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))


def _write_job(pages: Pages, folder: Path, read: JobFiles, title: str) -> None:
    measured = FigureData()
    listed = list(_write_samples(pages, folder, read, measured, title))
    drawn = [pages.draw(figure, folder / "figures") for figure in measured.draw_figures(read.report)]
    pages.render(
        "frozen/job.html", folder / "index.html", title=title, report=read.report, audit=read.audit, drawn=drawn,
        lines=list(build_lines(read.report)), listed=listed, size=SIZE,
        parameters=format_json(read.report["settings"]["params"]), provenance=list(_list_provenance(read)),
        command=_submit_command(read),
    )  # fmt: skip


def _write_samples(
    pages: Pages, folder: Path, read: JobFiles, measured: FigureData, title: str
) -> Iterator[SamplesPage]:
    total = read.report["request_counts"]["total"] - read.report["request_counts"]["in_progress"]
    models = _map_models(read)
    for number, some in enumerate(source.split_pages(read.samples(), SIZE), 1):
        for sample in some:
            measured.add(sample)
        page = _summarise_page(number, some)
        pages.render(
            "frozen/samples.html", folder / page.file, title=title, name=read.report["name"], page=page,
            entries=[prepare_sample(sample, models) for sample in some],
            earlier=_name_file(number - 1) if number > 1 else None,
            later=_name_file(number + 1) if number * SIZE < total else None,
        )  # fmt: skip
        yield page


def _summarise_page(number: int, some: Sequence[ReportSample]) -> SamplesPage:
    endings = Counter(sample.row.ending or sample.row.state for sample in some)
    first, last = some[0].row.index, some[-1].row.index
    return SamplesPage(file=_name_file(number), first=first, last=last, endings=dict(sorted(endings.items())))


def _name_file(number: int) -> str:
    return f"samples-{number:03}.html"


def _map_models(read: JobFiles) -> Mapping[str, str]:
    models = read.report["settings"]["models"]
    return {pin["hash"]: models[role]["name"] for role, pin in read.record.pins.items() if role in models}


def _list_job(read: JobFiles) -> dict[str, Any]:
    return {
        "slug": read.slug,
        "report": read.report,
        "audited": summarise_audit(read.audit["violations"]),
        "command": _submit_command(read),
    }


def _submit_command(read: JobFiles) -> str:
    models = read.report["settings"]["models"]
    return submit_again_command(read.job, read.record, {role: models[role]["name"] for role in ROLES if role in models})


def _list_provenance(read: JobFiles) -> Iterator[tuple[str, object]]:
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
    yield "audit", summarise_audit(read.audit["violations"])


def _describe_period(sources: Sequence[JobFiles]) -> str:
    ended = sorted({format_time(each.report["ended_at"]) for each in sources if each.report["ended_at"]})
    return f"{ended[0]} to {ended[-1]}" if len(ended) > 1 else "".join(ended)
