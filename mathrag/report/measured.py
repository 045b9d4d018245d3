"""What a job's figures are drawn from: added up sample by sample, while the pages are written."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from mathrag.report.drilldown import before, ran, role, waited
from mathrag.report.source import Sample
from shared.contracts.calls import CALL_KINDS
from shared.contracts.provenance import Residency
from shared.contracts.samples import Candidate, GateDecision, Truth
from shared.pages.figures import Figure, calibration, latency, memory, ranks, rho, roc

VERIFIER = "the verifier: no equation refuted"


class Measured:
    """Qualities by rank, times by role, ratings against verdicts."""

    def __init__(self) -> None:
        self._before: defaultdict[int, list[float]] = defaultdict(list)
        self._after: defaultdict[int, list[float]] = defaultdict(list)
        self._waited: defaultdict[str, list[float]] = defaultdict(list)
        self._ran: defaultdict[str, list[float]] = defaultdict(list)
        self._rated: list[tuple[float, float]] = []

    def add(self, sample: Sample) -> None:
        """Count this sample in."""
        self._time(sample)
        if sample.outcome is None:
            return
        candidates = {each.document: each for each in sample.outcome.trace.candidates}
        for document, rank in before(list(candidates.values())).items():
            quality = candidates[document].quality
            if quality is not None:
                self._before[rank].append(quality)
                self._after[candidates[document].rank].append(quality)
        first = candidates.get(sample.row.context[0]) if sample.row.context else None
        if first is not None and (quality := _judged(first)) is not None and sample.row.correct is not None:
            self._rated.append((quality, float(sample.row.correct)))

    def _time(self, sample: Sample) -> None:
        for call in sample.record.calls:
            took = ran(call)
            if call.created and took is not None:  # a reply that was there already took no time of this job
                stage = role(sample, call)
                self._ran[stage].append(took)
                self._waited[stage].append(waited(call) or 0.0)

    def figures(self, report: Any) -> Iterator[Figure]:
        """Those that this job has something for; `report` is what the API says of it."""
        if report["gate"]:
            yield from _gate(msgspec.convert(report["gate"], GateDecision))
        if self._before:
            yield ranks.chart([*ranks.of(ranks.BEFORE, self._before), *ranks.of(ranks.AFTER, self._after)])
        if self._rated:
            yield calibration.chart(calibration.of(self._rated))
        if self._ran:
            yield latency.chart([row for stage in CALL_KINDS for row in self._latency(stage)])
        if residencies := list(_residencies(report)):
            ended = report["ended_at"]
            yield memory.chart(residencies, until=msgspec.convert(ended, datetime) if ended else None)

    def _latency(self, stage: str) -> list[latency.Row]:
        return [
            *latency.of(stage, latency.WAITED, self._waited[stage]), *latency.of(stage, latency.RAN, self._ran[stage])
        ]  # fmt: skip


def _judged(candidate: Candidate) -> float | None:
    """The judge's rating; what rules or a verifier say comes with what it was made of."""
    return candidate.quality if candidate.features is None else None


def _gate(decision: GateDecision) -> Iterator[Figure]:
    yield rho.chart(decision)
    if decision.truth is not None and any(score is not None for score in decision.truth.scores):
        rated = zip(decision.judge_scores, decision.truth.scores, strict=True)
        known = [(score, true) for score, true in rated if true is not None]
        yield calibration.chart(
            calibration.of(known),
            truth="equations that the verifier could verify",
            counted="documents",
            title="Calibration of the judge, against the verifier",
            name="calibration-verifier",
        )
        scored = _scored(decision, decision.truth)
        if len({row.good for row in scored}) > 1:  # among good documents alone nothing can be told from them
            yield roc.chart(scored, truth=VERIFIER)


def _scored(decision: GateDecision, truth: Truth) -> list[roc.Row]:
    """Documents that the verifier could decide; good is one in which it refuted nothing."""
    known = [
        (place, refuted == 0)
        for place, (score, refuted) in enumerate(zip(truth.scores, truth.refuted, strict=True))
        if score is not None
    ]
    scorers = (("rules", decision.rule_scores), ("judge", decision.judge_scores))
    return [roc.Row(scorer=name, score=scores[place], good=good) for name, scores in scorers for place, good in known]


def _residencies(report: Any) -> Iterator[memory.Row]:
    for residency in msgspec.convert(report["residencies"], tuple[Residency, ...]):
        if residency.opened_at is not None:
            for model in residency.models:
                yield memory.Row(
                    device=residency.device,
                    epoch=residency.epoch,
                    model=model,
                    opened_at=residency.opened_at,
                    closed_at=residency.closed_at,
                    mib=residency.memory_mib.get(model),
                )
