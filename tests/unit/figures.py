"""Rows for every figure, and the drawings that they make, recorded: what is drawn changes only where somebody looked.

python -m tests.unit.figures       # writes golden/*.svg beside this file; look at the pictures before you commit
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.pages import figures
from shared.pages.figures import Figure
from shared.samples import GateDecision, Strategy

GOLDEN = Path(__file__).with_name("golden")
DECISION = GateDecision(
    strategy=Strategy.JUDGE, reason="rho = 0.139 < tau = 0.45: judge", tau=0.45, rho=0.139, low=-0.018, high=0.289,
    spearman=0.121, documents=("a", "b", "c", "d"), rule_scores=(0.25, 0.25, 0.5, 0.875),
    judge_scores=(1.0, 1.0, 0.0, 0.75), asked=6, unparsed=2,
)  # fmt: skip


def make_figures() -> list[Figure]:
    """One of each."""
    return [
        figures.draw_accuracy(
            [
                figures.AccuracyRow(label="dense", value=0.61, low=0.567, high=0.652, n=500),
                figures.AccuracyRow(label="hybrid", value=None, n=0),
            ]
        ),
        figures.draw_rho(DECISION),
        figures.draw_weights([cell for across in range(3) for cell in _column(across)]),
        figures.draw_endings(
            [
                *figures.make_ending_rows("dense", {"correct": 61, "logic": 30, "truncated": 0, "refused": 9}),
                *figures.make_ending_rows("hybrid", {"correct": 70, "logic": 30}, items=20),
            ]
        ),
        figures.draw_ranks(
            [
                *figures.make_rank_rows(figures.BEFORE, {1: [0.25, 0.5, 0.25], 2: [0.5, 0.75, 1.0]}),
                *figures.make_rank_rows(figures.AFTER, {1: [0.5, 0.75, 1.0], 2: [0.25]}),
            ]
        ),
        figures.draw_residencies(residencies()),
        figures.draw_latency(
            [
                *figures.make_latency_rows("judge", figures.WAITED, [1.0, 2.0, 3.0]),
                *figures.make_latency_rows("judge", figures.RAN, [0.0, 0.1, 0.2]),
            ]
        ),
        figures.draw_calibration(figures.make_calibration_rows([(0.25, 0.0), (0.25, 1.0), (1.0, 1.0), (1.0, 1.0)])),
        figures.draw_roc(scored(), truth="the verifier"),
        figures.draw_pareto(thresholds()),
    ]


def residencies() -> list[figures.MemoryRow]:
    """The judge, then the generator beside it, whose memory could not be measured; still open."""
    at = datetime(2026, 11, 21, 8, tzinfo=UTC)
    later = at + timedelta(seconds=20)
    return [
        figures.MemoryRow(device="cpu:0", epoch=1, model="judge", opened_at=at, closed_at=later, mib=41.5),
        figures.MemoryRow(device="cpu:0", epoch=2, model="judge", opened_at=later, closed_at=None, mib=42.0),
        figures.MemoryRow(device="cpu:0", epoch=2, model="generator", opened_at=later, closed_at=None, mib=None),
        figures.MemoryRow(
            device="cpu:0", epoch=3, model="judge", opened_at=at + timedelta(seconds=30), closed_at=None, mib=40.0
        ),
    ]


def scored() -> list[figures.RocRow]:
    """The judge tells most good documents, the rules none."""
    judge = [(0.75, True), (1.0, True), (0.25, True), (0.25, False), (0.0, False), (0.5, False)]
    rules = [(0.5, good) for _, good in judge]
    rated = (("judge", judge), ("rules", rules))
    return [figures.RocRow(scorer=scorer, score=score, good=good) for scorer, pairs in rated for score, good in pairs]


def thresholds() -> list[figures.ParetoRow]:
    """Nobody is easy, some are, all are; between them one that is worse than the next and saves no more."""
    chance = {"chance_saved": 0.35, "chance_value": 0.65}
    return [
        figures.ParetoRow(
            threshold=0.0, saved=0.0, value=0.7, low=0.65, high=0.75, n=200, chance_saved=0.0, chance_value=0.7
        ),
        figures.ParetoRow(threshold=0.25, saved=0.4, value=0.6, low=0.55, high=0.65, n=200, **chance),
        figures.ParetoRow(threshold=0.5, saved=0.4, value=0.66, low=0.61, high=0.71, n=200, **chance),
        figures.ParetoRow(threshold=1.0, saved=1.0, value=None, low=0.0, high=1.0, n=0),
    ]


def _column(across: int) -> list[figures.WeightsRow]:
    return [
        figures.WeightsRow(
            rrf_weight=across / 10, quality_weight=up / 10, value=None if across + up == 0 else value, n=100
        )
        for up, value in enumerate((0.4, 0.5 + 0.1 * (across == 0), 0.6))
    ]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for figure in make_figures():
        (GOLDEN / f"{figure.name}.svg").write_text(figures.render_svg(figure), "utf-8")
