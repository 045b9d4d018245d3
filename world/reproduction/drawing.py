"""Draw the figures of the text from the committed results."""

from collections.abc import Iterator

import msgspec

from shared.pages import figures as drawn
from shared.pages.figures import Figure
from shared.samples import GateDecision
from world.reproduction import curves, findings
from world.reproduction.findings import Json, VariantAccuracy
from world.reproduction.tables import LABELS

VARIED = {
    "noise": "Ratings that are wrong (%)", "context": "Documents in the context",
    "bad": "Bad documents (share of an operator's own)", "unrelated": "Unrelated documents (for each question)",
    "agreement": "Agreement of form and logic (-1 to 1)", "tau": "tau, the gate's threshold",
}  # fmt: skip


def figures(results: Json) -> Iterator[Figure]:
    """Yield all figures."""
    yield _main(results)
    for name, decision in results["decisions"].items():
        title = f"Do rules agree with the judge? Setting {name}, first seed"
        yield drawn.draw_rho(msgspec.convert(decision, GateDecision), title=title, name=f"rho-{name}")
    yield _weights(results)
    counted = findings.endings(results["studies"]["main-orthogonal"])
    rows = [row for variant, counts in counted.items() for row in drawn.make_ending_rows(LABELS[variant], counts)]
    yield drawn.draw_endings(rows, title="How samples ended, setting orthogonal")
    for name, axis in VARIED.items():
        yield curves.chart(_curve(results, name), name=name, title=f"Accuracy: {axis}", axis=axis)


def _main(results: Json) -> Figure:
    rows = []
    for name in findings.settings(results):
        for score in findings.scores(results["studies"][f"main-{name}"]):
            low, high = score.bounds
            label = LABELS[score.variant]
            rows.append(
                drawn.AccuracyRow(label=label, value=score.value, low=low, high=high, n=score.graded, group=name)
            )
    return drawn.draw_accuracy(rows, title="Accuracy in six settings of the problem world")


def _weights(results: Json) -> Figure:
    rows = []
    for row in results["studies"]["weights"]["report"]["rows"]:
        found: Json = row["result"]["accuracy"] if row["result"] else {}
        rows.append(
            drawn.WeightsRow(
                rrf_weight=row["point"]["rrf_weight"],
                quality_weight=row["point"]["quality_weight"],
                value=found.get("value"),
                low=found.get("low"),
                high=found.get("high"),
                n=found.get("graded", 0),
                job=row["job"],
            )
        )
    return drawn.draw_weights(rows, title="Accuracy by weights, setting orthogonal, judge forced")


def _curve(results: Json, name: str) -> list[curves.Row]:
    if name == "tau":
        studies = {each: results["studies"][f"main-{each}"] for each in findings.settings(results)}
        return [_point(tau, each, score) for each, study in studies.items() for tau, _, score in findings.by_tau(study)]
    study = results["studies"][name]
    if name == "noise":
        return [_noisy(score, share) for score in findings.scores(study) for share in _shares(score)]
    axis = "context_size" if name == "context" else ""
    return [_point(score.at, LABELS[score.variant], score) for score in findings.scores(study, axis)]


def _shares(score: VariantAccuracy) -> list[float]:
    """Return a variant's places on the axis of noise; hybrid uses no ratings, so its line is level."""
    return [0.0, 50.0] if score.variant == "hybrid" else [float(score.variant.removeprefix("oracle-"))]


def _noisy(score: VariantAccuracy, share: float) -> curves.Row:
    return _point(share, LABELS["hybrid"] if score.variant == "hybrid" else "gate, judge with noise", score)


def _point(x: float, label: str, score: VariantAccuracy) -> curves.Row:
    low, high = score.bounds
    return curves.Row(x=x, label=label, value=score.value, low=low, high=high, n=score.graded)
