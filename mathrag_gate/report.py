"""Write the report bundle: a folder with pages, figures and data from the API, which opens without a server.

`data/` is written first, with the files of `mathrag job export`. Everything else is derived from it, so the pages can
be written again from the data.
"""

import hashlib
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from mathrag.client.service import summarise_audit
from mathrag.errors import Invalid
from mathrag.formatting import explain_missing_answers, format_headline
from mathrag.report_lines import build_lines, describe_rules, name_rules
from mathrag_gate import first_screen
from mathrag_gate.first_screen import Choice, Relevant, System
from shared.calls import CALL_KINDS, Request
from shared.pages import figures
from shared.pages.figures import Figure
from shared.pages.formatting import format_json
from shared.pages.lines import summarise_reply
from shared.pages.pages import Pages, format_time
from shared.params import list_changes
from shared.pipelines import registry
from shared.rag.provenance import Ending, sort_as_found
from shared.records import CallRecord, EndLine, JobLine, JobRecord, Residency, SampleLine, SampleRecord, Texts
from shared.replies import Generated, Reply
from shared.samples import Candidate, GateDecision, Outcome, SampleRow


def submit_again_command(job: Any, record: JobRecord, models: dict[str, str]) -> str:
    """Return `mathrag job submit` with every parameter that differs from its default, and every model by role.

    The command has `--reuse none`, because a reproduction that reuses the original's replies proves nothing.
    """
    words = ["mathrag", "job", "submit", "--name", f"{job['name']}-again", "--dataset", record.dataset.name]
    words += ["--pipeline", record.pipeline, "--repeats", str(record.repeats), "--reuse", "none"]
    if limit := record.code.get("limit"):
        words += ["--limit", str(limit)]
    if record.corpus is not None:
        words += ["--corpus", record.corpus.name]
    params = job["params"]
    accepted = registry.get(record.pipeline).select_read(params) if record.pipeline in registry.names() else params
    for key, value in list_changes(accepted):
        words += ["--set", f"{key}={msgspec.json.encode(value).decode()}"]
    for role, name in models.items():
        words += ["--model", f"{role}={name}"]
    return shlex.join(words)


# One job's files in the data folder: its reports, and its samples with their records.

_LINE = msgspec.json.Decoder(JobLine | SampleLine | EndLine)
_ROW = msgspec.json.Decoder(SampleRow | None)
_RECORD = msgspec.json.Decoder(SampleRecord)
_OUTCOME = msgspec.json.Decoder(Outcome)
FILE_NAMES = {
    "job": "job.json", "report": "report.json", "audit": "audit.json", "rows": "results.jsonl",
    "provenance": "provenance.jsonl",
}  # fmt: skip


class ReportSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample: its row in the results, and its provenance record."""

    row: SampleRow
    record: SampleRecord
    outcome: Outcome | None
    texts: Texts
    """Texts by the hashes in the record."""
    link: str
    """Hash of the sample's link in the job's chain."""


class JobFiles:
    """Reads the exported files of a job in `folder`; the samples are read only when they are iterated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name
        """Name of the job's folder among the pages."""
        self.job, self.report, self.audit = (
            msgspec.json.decode((folder / FILE_NAMES[name]).read_bytes()) for name in ("job", "report", "audit")
        )
        line = next(self._read_lines())
        if not isinstance(line, JobLine):
            raise self._refuse_chain("the chain does not start with the job")
        self.first = line
        self.record = msgspec.json.decode(line.record, type=JobRecord)
        self.chain: str | None = None
        """Hash of the last link; None until all samples were read and the chain was verified."""

    @property
    def documents(self) -> int | None:
        """Return the number of documents in the corpus's index; None if the job did not record it."""
        indexes = (self.record.code.get("indexes") or {}).values()
        return max((each["documents"] for each in indexes if "documents" in each), default=None)

    def samples(self) -> Iterator[ReportSample]:
        """Yield all samples in dataset order; verify the chain after the last one.

        Raises:
            Invalid: the chain is broken, or the files were not exported together from one job.
        """
        with (self.folder / FILE_NAMES["rows"]).open("rb") as rows:
            previous = hashlib.sha256(self.first.record.encode()).hexdigest()
            for line in self._read_lines():
                if isinstance(line, SampleLine):
                    found = hashlib.sha256(bytes.fromhex(previous) + line.record.encode()).hexdigest()
                    if (line.previous, line.hash) != (previous, found):
                        raise self._refuse_chain(f"link {line.sequence} of the chain does not follow the previous link")
                    previous = found
                    record = _RECORD.decode(line.record)
                    row = _ROW.decode(next(rows, b"null"))
                    if row is None or (row.index, row.repeat) != (record.index, record.repeat):
                        where = f"sample {record.index}, repeat {record.repeat}"
                        raise self._refuse_chain(f"{where} is not in {FILE_NAMES['rows']}")
                    outcome = _OUTCOME.decode(line.texts[record.outcome]) if record.outcome else None
                    yield ReportSample(row=row, record=record, outcome=outcome, texts=line.texts, link=line.hash)
                elif isinstance(line, EndLine):
                    self.chain = previous if line.chain == previous else None
        if self.chain is None:
            raise self._refuse_chain("the chain ends before its last link")

    def rows(self) -> Iterator[SampleRow]:
        """Yield the rows of all samples, without their records."""
        with (self.folder / FILE_NAMES["rows"]).open("rb") as rows:
            for line in rows:
                if (row := _ROW.decode(line)) is not None:
                    yield row

    def _read_lines(self) -> Iterator[JobLine | SampleLine | EndLine]:
        with (self.folder / FILE_NAMES["provenance"]).open("rb") as lines:
            for line in lines:
                yield _LINE.decode(line)

    def _refuse_chain(self, why: str) -> Invalid:
        return Invalid(f"{self.folder / FILE_NAMES['provenance']}: {why}", hint="write the report again")


def split_pages(samples: Iterator[ReportSample], size: int) -> Iterator[list[ReportSample]]:
    """Split the samples into lists of `size`, one list per page."""
    for _, some in groupby(enumerate(samples), lambda numbered: numbered[0] // size):
        yield [sample for _, sample in some]


# Samples prepared for their pages: documents with ranks and scores, and calls with their times.

_REPLY = msgspec.json.Decoder(Reply)
_REQUEST = msgspec.json.Decoder(Request)
_DOCUMENT = msgspec.json.Decoder(tuple[str, str])


class PromptDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the prompt and its ranks in retrieval."""

    document: str
    problem: str
    text: str
    before: int | None
    """Rank after fusion; None if nothing was fused."""
    candidate: Candidate | None
    """Rank in the final order; None if the document was not a candidate there."""
    by: str
    """Names of the rules that led to the document; "" if none did."""


class CallEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the sample waited for, with a short form of its reply and its times."""

    role: str
    model: str
    said: str
    """The reply in a few words."""
    waited: float | None
    """Seconds in the queue."""
    ran: float | None
    """Seconds of its accepted attempt."""
    record: CallRecord


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with everything that its page shows."""

    row: SampleRow
    rules: tuple[tuple[str, str], ...]
    """Name and description of each rule that guided the sample."""
    passages: tuple[PromptDocument, ...]
    calls: tuple[CallEntry, ...]
    reply: str | None
    """Last reply of the generator, complete; None if the generator gave none."""
    link: str

    @property
    def seconds(self) -> float:
        """Run time of the calls that this sample created, in seconds; reused replies took no time."""
        return sum(call.ran or 0.0 for call in self.calls if call.record.created)


def prepare_sample(sample: ReportSample, models: Mapping[str, str]) -> SampleEntry:
    """Prepare a sample for its page; `models` maps the hashes in requests to names."""
    calls, generated = [], None
    for call in sample.record.calls:
        request = _REQUEST.decode(sample.texts[call.key])
        reply = _REPLY.decode(sample.texts[call.reply]) if call.reply else None
        if request.role == "generate" and isinstance(reply, Generated):
            generated = reply.text
        calls.append(
            CallEntry(
                role=request.role, model=models.get(request.model, request.model[:12]),
                said=summarise_reply(reply, call.completion_tokens), waited=queue_seconds(call),
                ran=run_seconds(call), record=call,
            )
        )  # fmt: skip
    rules = tuple(describe_rules(msgspec.to_builtins(sample.outcome.trace.decisions))) if sample.outcome else ()
    candidates = {each.document: each for each in sample.outcome.trace.candidates} if sample.outcome else {}
    ranks = compute_fused_ranks(list(candidates.values()))
    passages = [
        PromptDocument(
            document=hash_,
            problem=problem,
            text=text,
            before=ranks.get(hash_),
            candidate=candidates.get(hash_),
            by=name_rules(msgspec.to_builtins(candidates[hash_])) if hash_ in candidates else "",
        )
        for hash_ in sample.row.context
        for problem, text in [_DOCUMENT.decode(sample.texts[hash_]) if hash_ in sample.texts else ("", "")]
    ]
    return SampleEntry(
        row=sample.row, rules=rules, passages=tuple(passages), calls=tuple(calls), reply=generated, link=sample.link
    )


def compute_fused_ranks(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return ranks after fusion by document; equal scores are ordered by hash."""
    fused = [each for each in sort_as_found(candidates) if each.fused is not None]
    return {each.document: rank for rank, each in enumerate(fused, 1)}


def queue_seconds(call: CallRecord) -> float | None:
    """Return the seconds between queueing the call and its start; None if either is unknown."""
    return (call.started_at - call.queued_at).total_seconds() if call.queued_at and call.started_at else None


def run_seconds(call: CallRecord) -> float | None:
    """Return the run time of the accepted attempt in seconds; None if it is unknown."""
    return (call.ended_at - call.started_at).total_seconds() if call.started_at and call.ended_at else None


# Data for a job's figures, collected sample by sample while the pages are written.

VERIFIER = "the verifier: no equation refuted"


class FigureData:
    """Collects quality by rank, times by role, and ratings with verdicts."""

    def __init__(self) -> None:
        self._before: defaultdict[int, list[float]] = defaultdict(list)
        self._after: defaultdict[int, list[float]] = defaultdict(list)
        self._waited: defaultdict[str, list[float]] = defaultdict(list)
        self._ran: defaultdict[str, list[float]] = defaultdict(list)
        self._ratings: list[tuple[float, float]] = []

    def add(self, sample: ReportSample) -> None:
        """Add a sample."""
        for call in sample.record.calls:
            took = run_seconds(call)
            if call.created and took is not None:  # a reused reply took none of this job's time
                stage = _REQUEST.decode(sample.texts[call.key]).role
                self._ran[stage].append(took)
                self._waited[stage].append(queue_seconds(call) or 0.0)
        if sample.outcome is None:
            return
        candidates = {each.document: each for each in sample.outcome.trace.candidates}
        for document, rank in compute_fused_ranks(list(candidates.values())).items():
            quality = candidates[document].quality
            if quality is not None:
                self._before[rank].append(quality)
                self._after[candidates[document].rank].append(quality)
        first, correct = candidates.get(next(iter(sample.row.context), "")), sample.row.correct
        # A quality with features comes from rules or a verifier, not from the judge.
        if first is not None and first.features is None and first.quality is not None and correct is not None:
            self._ratings.append((first.quality, float(correct)))

    def draw_figures(self, report: Any) -> Iterator[Figure]:
        """Yield each figure that this job has data for; `report` is the API's report of the job."""
        if report["gate"]:
            yield from _draw_gate(msgspec.convert(report["gate"], GateDecision))
        if self._before:
            before = figures.make_rank_rows(figures.BEFORE, self._before)
            yield figures.draw_ranks([*before, *figures.make_rank_rows(figures.AFTER, self._after)])
        if self._ratings:
            yield figures.draw_calibration(figures.make_calibration_rows(self._ratings))
        if self._ran:
            kinds = ((figures.WAITED, self._waited), (figures.RAN, self._ran))
            yield figures.draw_latency([
                row
                for stage in CALL_KINDS
                for kind, seconds in kinds
                for row in figures.make_latency_rows(stage, kind, seconds[stage])
            ])  # fmt: skip
        if residencies := list(_list_residencies(report)):
            ended = report["ended_at"]
            yield figures.draw_residencies(residencies, until=msgspec.convert(ended, datetime) if ended else None)


def _draw_gate(decision: GateDecision) -> Iterator[Figure]:
    yield figures.draw_rho(decision)
    if decision.truth is not None and any(score is not None for score in decision.truth.scores):
        rated = zip(decision.judge_scores, decision.truth.scores, strict=True)
        known = [(score, true) for score, true in rated if true is not None]
        yield figures.draw_calibration(
            figures.make_calibration_rows(known),
            truth="equations that the verifier could verify",
            counted="documents",
            title="Calibration of the judge, against the verifier",
            name="calibration-verifier",
        )
        # A document that the verifier could check is good if the verifier refutes nothing in it.
        checked = zip(decision.truth.scores, decision.truth.refuted, strict=True)
        good = {place: refuted == 0 for place, (score, refuted) in enumerate(checked) if score is not None}
        scorers = (("rules", decision.rule_scores), ("judge", decision.judge_scores))
        if len(set(good.values())) > 1:  # a ROC curve needs good and bad documents
            yield figures.draw_roc([
                figures.RocRow(scorer=name, score=scores[place], good=is_good)
                for name, scores in scorers for place, is_good in good.items()
            ], truth=VERIFIER)  # fmt: skip


def _list_residencies(report: Any) -> Iterator[figures.MemoryRow]:
    for residency in msgspec.convert(report["residencies"], tuple[Residency, ...]):
        if residency.opened_at is not None:
            for model in residency.models:
                yield figures.MemoryRow(
                    device=residency.device, epoch=residency.epoch, model=model, opened_at=residency.opened_at,
                    closed_at=residency.closed_at, mib=residency.memory_mib.get(model),
                )  # fmt: skip


# Figures, comparisons and notes of the first page, for all jobs.

NOTHING: dict[str, Any] = {"value": None, "low": None, "high": None, "items": 0}
"""Accuracy of a cell that was not run."""
WEIGHTS = ("rrf_weight", "quality_weight")
MOST = 60
"""Largest number of rows in a figure; the table has all."""
POOLED = "Over all datasets"
Shown = tuple[list[figures.EndingRow], figures.AccuracyRow]
"""Rows of a system: the endings of its samples, and its accuracy."""


def list_figures(reports: Sequence[Any], experiment: Any) -> Iterator[Figure]:
    """Yield accuracy and endings of the jobs or of the experiment's systems, then its grids of weights."""
    compared = experiment and experiment["comparisons"]
    rows_by_dataset = list(_list_systems(compared, reports) if compared else _list_jobs(reports))
    yield figures.draw_accuracy([row for _, row in rows_by_dataset[:MOST]])
    if rows := [row for ended, _ in rows_by_dataset[:MOST] for row in ended if row.n]:
        yield figures.draw_endings(rows)
    if experiment:
        yield from _draw_weights(experiment["rows"])


def find_headline(reports: Sequence[Any], comparison: Any, experiment: Any) -> str:
    """Return the main finding: that of the comparison, or that of the only job."""
    compared = comparison or ((experiment or {}).get("comparisons") or {}).get("pooled")
    if compared and compared.get("finding"):
        return str(compared["finding"])
    return format_headline(reports[0]) if len(reports) == 1 else f"{len(reports)} jobs, which were not compared"


def list_comparisons(comparison: Any, experiment: Any) -> Iterator[dict[str, Any]]:
    """Yield each comparison with a title, its pairs in words and its notes."""
    if comparison:
        yield {"title": "All jobs", **comparison}
    compared = experiment and experiment["comparisons"]
    if compared:
        yield {"title": POOLED, **compared["pooled"]}
        for dataset, found in compared["datasets"].items():
            yield {"title": dataset, **found}


def list_notes(reports: Sequence[Any], experiment: Any) -> Iterator[str]:
    """Yield the notes of each job with its name, then those of the experiment."""
    for report in reports:
        unreadable = explain_missing_answers(report["extraction"], report["accuracy"])
        if unreadable and len(reports) > 1:  # for a single job it is the headline
            yield f"{report['name']}: {unreadable}"
        for note in report["notes"]:
            yield f"{report['name']}: {note}"
    yield from (experiment or {}).get("notes", ())
    if len(reports) > MOST:
        yield f"the figures show only {MOST} of {len(reports)} jobs"


def _list_jobs(reports: Sequence[Any]) -> Iterator[Shown]:
    """Yield rows of each job; labels of jobs with the same name also have the start of the id."""
    often = Counter(report["name"] for report in reports)
    for report in reports:
        label = report["name"] if often[report["name"]] == 1 else f"{report['name']} {report['id'][:8]}"
        found = report["accuracy"]
        row = _make_accuracy_row(label, found, found["items"], report["settings"]["dataset"])
        yield _make_ending_rows(label, [report]), row


def _list_systems(compared: Any, reports: Sequence[Any]) -> Iterator[Shown]:
    """Yield rows of each system over all datasets, then its accuracy on each dataset."""
    by_id = {report["id"]: report for report in reports}
    for group, found in ((POOLED, compared["pooled"]), *compared["datasets"].items()):
        for system in found["jobs"]:
            own = [by_id[job] for job in system["jobs"] if job in by_id] if group == POOLED else []
            name = system["name"]
            yield _make_ending_rows(name, own), _make_accuracy_row(name, system["accuracy"], system["items"], group)


def _make_accuracy_row(label: str, found: Any, items: int, group: str) -> figures.AccuracyRow:
    return figures.AccuracyRow(
        label=label, value=found["value"], low=found["low"], high=found["high"], n=items, group=group
    )


def _make_ending_rows(label: str, reports: Sequence[Any]) -> list[figures.EndingRow]:
    counts = {ending.value: sum(report["endings"].get(ending, 0) for report in reports) for ending in Ending}
    items = sum(report["items"] for report in reports)
    # Tell whether all items of these jobs have equally many ended samples.
    repeats = {report["settings"]["repeats"] for report in reports}
    have_equal_repeats = len(repeats) < 2 and all(
        sum(report["endings"].values()) == report["items"] * report["settings"]["repeats"] for report in reports
    )
    return figures.make_ending_rows(label, counts, items if have_equal_repeats else 0)


def _draw_weights(cells: Sequence[Any]) -> Iterator[Figure]:
    """Yield one heat map for each dataset, variant, seed and set of other parameters whose cells set both weights."""
    grids: dict[tuple[str, ...], list[figures.WeightsRow]] = {}
    for cell in cells:
        if all(weight in cell["point"] for weight in WEIGHTS):
            rest = {name: value for name, value in cell["point"].items() if name not in WEIGHTS}
            settings = [f"{name} {value}" for name, value in rest.items()]
            seed = [f"seed {cell['seed']}"] if cell["seed"] is not None else []
            found = cell["result"]["accuracy"] if cell["result"] else NOTHING
            row = figures.WeightsRow(
                rrf_weight=cell["point"][WEIGHTS[0]], quality_weight=cell["point"][WEIGHTS[1]], value=found["value"],
                low=found["low"], high=found["high"], n=found["items"], job=cell["job"],
            )  # fmt: skip
            grids.setdefault((f"{cell['variant']} over {cell['dataset']}", *settings, *seed), []).append(row)
    for number, (grid, rows) in enumerate(grids.items(), 1):
        name = "weights" if len(grids) == 1 else f"weights-{number}"
        yield figures.draw_weights(rows, title=f"Accuracy by weights: {', '.join(grid)}", name=name)


# The pages of a report, written from the files in `data/`, with one page of samples in memory at a time.

SIZE = 200
"""Samples per page: a page has a few megabytes, which a browser filters and sorts quickly."""
MOST_CHARTED = 12
"""Largest number of systems in the chart of the first screen; the figures of the details have more."""
ROLES = ("judge", "generate")
"""Roles whose models a submission can name; the others are built in or belong to the corpus."""


class SamplesPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of samples: its file, its items and their endings."""

    file: str
    first: int
    last: int
    """First and last item of the page, by position in the dataset."""
    endings: dict[str, int]


def write(
    out: Path,
    jobs: Sequence[Path],
    title: str | None = None,
    comparison: Any = None,
    experiment: Any = None,
    *,
    summary: str = "",
    labels: Mapping[str, str] | None = None,
    relevant: Mapping[str, Relevant] | None = None,
) -> Path:
    """Write all pages of the jobs whose files are in these folders; return the page to open.

    Args:
        out: the report's folder, which contains `data/`.
        jobs: folders of `data/`, one for each job.
        title: title of the report; None writes a question that names the compared systems.
        comparison: answer of GET /v1/comparison for the jobs, if they were compared.
        experiment: answer of GET /v1/experiments/{experiment}/report, if the jobs are an experiment.
        summary: text of the user for the place below the title.
        labels: labels of the systems, by the id of a job or the name of an experiment's system.
        relevant: relevant documents by the id of a job, if the dataset names them.

    Raises:
        Invalid: a job's chain is broken, or its files do not belong together.
    """
    (out / "data").mkdir(parents=True, exist_ok=True)
    for name, value in (("comparison", comparison), ("experiment", experiment), ("relevant", relevant or None)):
        if value is not None:
            (out / "data" / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))
    pages, sources = Pages(), [JobFiles(folder) for folder in jobs]
    reports = [each.report for each in sources]
    compared = comparison or (experiment and experiment["comparisons"] and experiment["comparisons"]["pooled"])
    systems = first_screen.make_systems(reports, compared, labels or {})
    screen = FirstScreen(systems, sources, compared, relevant or {})
    title = title or first_screen.write_title(systems)
    for read in sources:
        _write_job(pages, out / "jobs" / read.slug, read, title, screen)
    drawn = [pages.draw(figure, out / "figures") for figure in list_figures(reports, experiment)]
    ended = sorted({format_time(each["ended_at"]) for each in reports if each["ended_at"]})
    period = f"{ended[0]} to {ended[-1]}" if len(ended) > 1 else "".join(ended)
    listed = [
        {
            "slug": each.slug, "report": each.report, "audited": summarise_audit(each.audit["violations"]),
            "command": _submit_command(each), "label": screen.find_label(each.report["id"]),
        }
        for each in sorted(sources, key=lambda each: -(each.report["accuracy"]["value"] or 0.0))
    ]  # fmt: skip
    pages.render(
        "frozen/index.html", index := out / "index.html", title=title, summary=summary, screen=screen,
        chart=pages.draw(screen.draw_chart(), out / "figures"), jobs=listed, period=period,
        headline=find_headline(reports, comparison, experiment), notes=list(list_notes(reports, experiment)),
        drawn=drawn, comparisons=list(list_comparisons(comparison, experiment)), experiment=experiment,
        has_relevant=bool(relevant), cells=experiment["rows"] if experiment else [],
        slugs={each.report["id"]: each.slug for each in sources},
    )  # fmt: skip
    return index


class FirstScreen:
    """Content of the first screen for these systems; examples are complete when the pages of all jobs are written."""

    def __init__(
        self, systems: Sequence[System], sources: Sequence[JobFiles], compared: Any, relevant: Mapping[str, Relevant]
    ) -> None:
        contests = first_screen.list_contests(systems, compared)
        contest = first_screen.choose_contest(contests, compared)
        baseline = compared["baseline"] if compared else None
        self.sentence = first_screen.write_sentence(systems, contests, baseline)
        self.cautions = first_screen.list_cautions(
            systems, {each.report["id"] for each in sources if each.audit["violations"]}
        )
        self.next_steps = first_screen.list_next_steps(systems, contest)
        costs = first_screen.list_costs(systems)
        self.costs, self.unlisted = costs[:MOST_CHARTED], len(costs[MOST_CHARTED:])
        self.is_priced = any(each.usd for each in costs)
        documents = {each.record.corpus.name: each.documents for each in sources if each.record.corpus}
        self.facts = list(first_screen.list_facts(systems, documents))
        self._systems, self._relevant = systems, relevant
        self._files = {each.report["id"]: each for each in sources}
        self.reordering = self._describe_reordering()
        self._shown, self._choices = self._choose_examples(contest)
        self._kept: dict[tuple[str, int], tuple[SampleEntry, str]] = {}

    def find_label(self, job: str) -> str | None:
        """Return the first screen's label of a job's system; None if the job has no system."""
        found = [each.label for each in self._systems if any(report["id"] == job for report in each.reports)]
        return found[0] if found else None

    def draw_chart(self) -> Figure:
        """Draw the accuracy of the systems, in words that need no explanation."""
        return figures.draw_accuracy(
            first_screen.make_rows(self._systems, MOST_CHARTED), title="Questions answered right",
            name="answered-right", interval="95 % interval", axis="Questions answered right (%)",
            of="questions answered right",
        )  # fmt: skip

    def keep(self, job: str, entry: SampleEntry, file: str) -> None:
        """Keep the entry of a sample if it is an example; `file` is the name of its page."""
        row = entry.row
        for choice in self._choices:
            for (_, shown), index in zip(self._shown, choice.indexes, strict=True):
                if (shown.report["id"], index, 0) == (job, row.index, row.repeat):
                    self._kept[job, index] = entry, file

    @property
    def examples(self) -> list[dict[str, Any]]:
        """Return each example with its question, the expected answer, and the answer and documents of each system."""
        return [self._make_example(choice) for choice in self._choices]

    def _make_example(self, choice: Choice) -> dict[str, Any]:
        sides = []
        for (system, files), index in zip(self._shown, choice.indexes, strict=True):
            entry, file = self._kept[files.report["id"], index]
            relevant = self._relevant.get(files.report["id"], {}).get(index, ())
            passages = [
                {
                    "text": first_screen.shorten(f"{each.problem} {each.text}", first_screen.LONGEST_DOCUMENT),
                    "is_relevant": each.document in relevant,
                }
                for each in entry.passages[: first_screen.MOST_DOCUMENTS]
            ]  # fmt: skip
            answer = entry.row.answer
            sides.append({
                "label": system.heading, "correct": entry.row.correct, "passages": passages,
                "answer": None if answer is None else first_screen.shorten(answer, first_screen.LONGEST_ANSWER),
                "more": len(entry.passages) - len(passages), "link": f"jobs/{files.slug}/{file}#s{index}-0",
            })  # fmt: skip
        question = first_screen.shorten(entry.row.question, first_screen.LONGEST_QUESTION)
        gold = first_screen.shorten(entry.row.gold or "", first_screen.LONGEST_ANSWER)
        return {"heading": choice.heading, "question": question, "gold": gold, "sides": sides}

    def _choose_examples(self, contest: Any) -> tuple[list[tuple[System, JobFiles]], list[Choice]]:
        """Return the systems to show with the job of each, and the questions."""
        if contest is None:
            found = [(each, self._files[report["id"]]) for each in self._systems for report in each.reports[:1]]
            return (
                (found, first_screen.choose_alone(found[0][1].rows()))
                if len(self._systems) == len(found) == 1
                else ([], [])
            )
        one, other = contest.better, contest.other
        for left in one.reports:
            for right in other.reports:
                if len(one.reports) == 1 or left["settings"]["dataset"] == right["settings"]["dataset"]:
                    shown = [(one, self._files[left["id"]]), (other, self._files[right["id"]])]
                    rows = (files.rows() for _, files in shown)
                    return shown, first_screen.choose_differing((one.label, other.label), *rows)
        return [], []

    def _describe_reordering(self) -> str | None:
        found = first_screen.find_reordering(self._systems)
        if found is None:
            return None
        one, other = (self._files[each.reports[0]["id"]] for each in found)
        is_same = (one.record.dataset, one.record.corpus) == (other.record.dataset, other.record.corpus)
        relevant = self._relevant.get(one.report["id"])
        return first_screen.describe_reordering(one.rows(), other.rows(), relevant) if is_same and relevant else None


def _write_job(pages: Pages, folder: Path, read: JobFiles, title: str, screen: FirstScreen) -> None:
    measured = FigureData()
    listed = list(_write_samples(pages, folder, read, measured, title, screen))
    drawn = [pages.draw(figure, folder / "figures") for figure in measured.draw_figures(read.report)]
    pages.render(
        "frozen/job.html", folder / "index.html", title=title, report=read.report, audit=read.audit, drawn=drawn,
        lines=list(build_lines(read.report)), listed=listed, size=SIZE,
        parameters=format_json(read.report["settings"]["params"]), provenance=list(_list_provenance(read)),
        command=_submit_command(read),
    )  # fmt: skip


def _write_samples(
    pages: Pages, folder: Path, read: JobFiles, measured: FigureData, title: str, screen: FirstScreen
) -> Iterator[SamplesPage]:
    total = read.report["request_counts"]["total"] - read.report["request_counts"]["in_progress"]
    names = read.report["settings"]["models"]
    models = {pin["hash"]: names[role]["name"] for role, pin in read.record.pins.items() if role in names}
    for number, some in enumerate(split_pages(read.samples(), SIZE), 1):
        for sample in some:
            measured.add(sample)
        endings = Counter(sample.row.ending or sample.row.state for sample in some)
        first, last = some[0].row.index, some[-1].row.index
        page = SamplesPage(file=_name_file(number), first=first, last=last, endings=dict(sorted(endings.items())))
        entries = [prepare_sample(sample, models) for sample in some]
        for entry in entries:
            screen.keep(read.report["id"], entry, page.file)
        pages.render(
            "frozen/samples.html", folder / page.file, title=title, name=read.report["name"], page=page,
            entries=entries,
            earlier=_name_file(number - 1) if number > 1 else None,
            later=_name_file(number + 1) if number * SIZE < total else None,
        )  # fmt: skip
        yield page


def _name_file(number: int) -> str:
    return f"samples-{number:03}.html"


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
