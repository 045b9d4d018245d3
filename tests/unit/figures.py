"""Rows for every figure, and the charts that they make, recorded: what is drawn changes only where somebody looked.

python -m tests.unit.figures       # writes golden/*.json beside this file; look at the pictures before you commit
"""

from pathlib import Path

import msgspec

from services.orchestrator.figures import Figure, accuracy, endings, heatmap, rho
from shared.contracts.samples import GateDecision, Strategy

GOLDEN = Path(__file__).with_name("golden")
DECISION = GateDecision(
    strategy=Strategy.JUDGE, reason="rho = 0.139 < tau = 0.45: judge", tau=0.45, rho=0.139, low=-0.018, high=0.289,
    spearman=0.121, documents=("a", "b", "c", "d"), rule_scores=(0.25, 0.25, 0.5, 0.875),
    judge_scores=(1.0, 1.0, 0.0, 0.75), asked=6, unparsed=2,
)  # fmt: skip


def figures() -> list[Figure]:
    """One of each."""
    return [
        accuracy.chart(
            [
                accuracy.Row(label="dense", value=0.61, low=0.567, high=0.652, n=500, published=0.86),
                accuracy.Row(label="hybrid", value=None, n=0),
            ]
        ),
        rho.chart(DECISION),
        heatmap.chart([cell for across in range(3) for cell in _column(across)]),
        endings.chart(
            [
                *endings.of("dense", {"correct": 61, "logic": 30, "truncated": 0, "refused": 9}),
                *endings.of("hybrid", {"correct": 70, "logic": 30}, items=20),
            ]
        ),
    ]


def _column(across: int) -> list[heatmap.Row]:
    return [
        heatmap.Row(rrf_weight=across / 10, quality_weight=up / 10, value=None if across + up == 0 else value, n=100)
        for up, value in enumerate((0.4, 0.5 + 0.1 * (across == 0), 0.6))
    ]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for figure in figures():
        written = msgspec.json.format(msgspec.json.encode(figure.chart), indent=1)
        (GOLDEN / f"{figure.name}.json").write_bytes(written + b"\n")
