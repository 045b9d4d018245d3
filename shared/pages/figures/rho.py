"""What the gate decided by: every calibration document's score by rules against its score by the judge."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from shared.contracts.samples import GateDecision
from shared.pages.figures import library, look
from shared.pages.figures.figure import Figure

NAME = "rho"
SIDE = 340


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One document of the calibration."""

    document: str
    """Its hash."""
    rule: float
    """Quality by rules, in [0, 1]."""
    judge: float
    """Quality by the judge, (rating - 1) / 4."""


def chart(decision: GateDecision, *, title: str = "Do rules agree with the judge?", name: str = NAME) -> Figure:
    """A circle for each pair of scores, as large as it has documents; above them what the gate made of it.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    alt = library.altair()
    scored = zip(decision.documents, decision.rule_scores, decision.judge_scores, strict=True)
    rows = [Row(document=document, rule=rule, judge=judge) for document, rule, judge in scored]
    places = _places(rows)
    sizes = sorted({place["documents"] for place in places})
    axis = {"scale": alt.Scale(domain=[0, 1], padding=10, nice=False)}
    size = alt.Size(
        "documents:Q",
        title="Documents",
        scale=alt.Scale(domain=[1, max([2, *sizes])], range=[35, 500]),
        legend=alt.Legend(values=_shown(sizes), format="d") if len(sizes) > 1 else None,
    )
    drawn = (
        alt.Chart(look.values(places), width=SIDE, height=SIDE)
        .mark_circle(color=look.BLUE, opacity=0.45, stroke=look.BLACK, strokeWidth=0.7)
        .encode(
            x=alt.X("rule:Q", title="Quality by rules (0 to 1)", **axis),
            y=alt.Y("judge:Q", title="Quality by the judge (0 to 1)", **axis),
            size=size,
        )
    )
    caption = "Each circle is a pair of scores that calibration documents got, its area how many got it."
    return look.figure(name, title, [decision.reason, _certainty(decision)], caption, drawn, rows)


def _certainty(decision: GateDecision) -> str:
    """Such as "95 % interval of rho: -0.018 to 0.289; n = 158 documents, 2 replies without a rating"."""
    said = [look.numbered([len(decision.documents)], "documents")]
    if decision.low is not None and decision.high is not None:
        said.insert(0, f"95 % interval of rho: {decision.low:.3f} to {decision.high:.3f}")
    unparsed = f", {decision.unparsed} replies without a rating" if decision.unparsed else ""
    return "; ".join(said) + unparsed


def _places(rows: Sequence[Row]) -> list[dict[str, float]]:
    counted = Counter((row.rule, row.judge) for row in rows)
    # Large circles first, so that none hides a smaller one.
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    return [{"rule": rule, "judge": judge, "documents": count} for (rule, judge), count in ordered]


def _shown(sizes: Sequence[float]) -> list[float]:
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
