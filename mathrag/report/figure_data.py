"""Data for a job's figures, collected sample by sample while the pages are written."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from mathrag.report.drilldown import call_role, compute_fused_ranks, queue_seconds, run_seconds
from mathrag.report.source import ReportSample
from shared.calls import CALL_KINDS
from shared.pages import figures
from shared.pages.figures import Figure
from shared.records import Residency
from shared.samples import Candidate, GateDecision, Truth

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
        self._time(sample)
        if sample.outcome is None:
            return
        candidates = {each.document: each for each in sample.outcome.trace.candidates}
        for document, rank in compute_fused_ranks(list(candidates.values())).items():
            quality = candidates[document].quality
            if quality is not None:
                self._before[rank].append(quality)
                self._after[candidates[document].rank].append(quality)
        first = candidates.get(sample.row.context[0]) if sample.row.context else None
        if first is not None and (quality := _judge_rating(first)) is not None and sample.row.correct is not None:
            self._ratings.append((quality, float(sample.row.correct)))

    def _time(self, sample: ReportSample) -> None:
        for call in sample.record.calls:
            took = run_seconds(call)
            if call.created and took is not None:  # a reused reply took no time of this job
                stage = call_role(sample, call)
                self._ran[stage].append(took)
                self._waited[stage].append(queue_seconds(call) or 0.0)

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
            yield figures.draw_latency([row for stage in CALL_KINDS for row in self._list_latencies(stage)])
        if residencies := list(_list_residencies(report)):
            ended = report["ended_at"]
            yield figures.draw_residencies(residencies, until=msgspec.convert(ended, datetime) if ended else None)

    def _list_latencies(self, stage: str) -> list[figures.LatencyRow]:
        return [
            *figures.make_latency_rows(stage, figures.WAITED, self._waited[stage]),
            *figures.make_latency_rows(stage, figures.RAN, self._ran[stage])
        ]  # fmt: skip


def _judge_rating(candidate: Candidate) -> float | None:
    """Return the judge's rating; None if the quality comes from rules or a verifier, which have features."""
    return candidate.quality if candidate.features is None else None


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
        scored = _score_documents(decision, decision.truth)
        if len({row.good for row in scored}) > 1:  # a ROC curve needs good and bad documents
            yield figures.draw_roc(scored, truth=VERIFIER)


def _score_documents(decision: GateDecision, truth: Truth) -> list[figures.RocRow]:
    """Return scores of documents that the verifier could check; good are those with nothing refuted."""
    known = [
        (place, refuted == 0)
        for place, (score, refuted) in enumerate(zip(truth.scores, truth.refuted, strict=True))
        if score is not None
    ]
    scorers = (("rules", decision.rule_scores), ("judge", decision.judge_scores))
    return [
        figures.RocRow(scorer=name, score=scores[place], good=good) for name, scores in scorers for place, good in known
    ]


def _list_residencies(report: Any) -> Iterator[figures.MemoryRow]:
    for residency in msgspec.convert(report["residencies"], tuple[Residency, ...]):
        if residency.opened_at is not None:
            for model in residency.models:
                yield figures.MemoryRow(
                    device=residency.device,
                    epoch=residency.epoch,
                    model=model,
                    opened_at=residency.opened_at,
                    closed_at=residency.closed_at,
                    mib=residency.memory_mib.get(model),
                )
