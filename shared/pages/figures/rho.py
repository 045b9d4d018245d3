"""Draw the scores that the gate decided by: each calibration document by rules against by the judge."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from shared.pages.figures import library, style
from shared.pages.figures.figure import Figure
from shared.samples import GateDecision

NAME = "rho"
SIDE = 340


class RhoRow(msgspec.Struct, frozen=True, kw_only=True):
    """One calibration document with both scores."""

    document: str
    """The document's hash."""
    rule: float
    """The score by rules, in [0, 1]."""
    judge: float
    """The score by the judge, (rating - 1) / 4."""


def draw(decision: GateDecision, *, title: str = "Do rules agree with the judge?", name: str = NAME) -> Figure:
    """Draw a circle for each pair of scores, its area by its number of documents, and the gate's decision above.

    Raises:
        NotInstalled: the extra `report` is missing.
    """
    alt = library.import_altair()
    scored = zip(decision.documents, decision.rule_scores, decision.judge_scores, strict=True)
    rows = [RhoRow(document=document, rule=rule, judge=judge) for document, rule, judge in scored]
    counted = Counter((row.rule, row.judge) for row in rows)
    # Large circles first, so that none hides a smaller one.
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    places = [{"rule": rule, "judge": judge, "documents": count} for (rule, judge), count in ordered]
    sizes = sorted({place["documents"] for place in places})
    axis = {"scale": alt.Scale(domain=[0, 1], padding=10, nice=False)}
    size = alt.Size(
        "documents:Q",
        title="Documents",
        scale=alt.Scale(domain=[1, max([2, *sizes])], range=[35, 500]),
        legend=alt.Legend(values=_legend_sizes(sizes), format="d") if len(sizes) > 1 else None,
    )
    drawn = (
        alt.Chart(style.make_data(places), width=SIDE, height=SIDE)
        .mark_circle(color=style.BLUE, opacity=0.45, stroke=style.BLACK, strokeWidth=0.7)
        .encode(
            x=alt.X("rule:Q", title="Quality by rules (0 to 1)", **axis),
            y=alt.Y("judge:Q", title="Quality by the judge (0 to 1)", **axis),
            size=size,
        )
    )
    caption = "Each circle is a pair of scores that calibration documents got, its area how many got it."
    return style.make_figure(name, title, [decision.reason, _describe_certainty(decision)], caption, drawn, rows)


def _describe_certainty(decision: GateDecision) -> str:
    """Return for example "95 % interval of rho: -0.018 to 0.289; n = 158 documents, 2 replies without a rating"."""
    caption = [style.format_n([len(decision.documents)], "documents")]
    if decision.low is not None and decision.high is not None:
        caption.insert(0, f"95 % interval of rho: {decision.low:.3f} to {decision.high:.3f}")
    unparsed = f", {decision.unparsed} replies without a rating" if decision.unparsed else ""
    return "; ".join(caption) + unparsed


def _legend_sizes(sizes: Sequence[float]) -> list[float]:
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
