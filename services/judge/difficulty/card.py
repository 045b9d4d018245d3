"""Render the classifier's card, `models/difficulty/README.md`, with the figures of the evaluation."""

from collections.abc import Iterable, Sequence

from services.judge.difficulty.figures import ClassifierEvaluation, GroupFigures, PartFigures
from shared.statistics.intervals import Interval

HEAD = """\
# Difficulty classifier

Estimates from the text of a problem alone how probable it is that the problem is *hard*: level 4 or 5 of MATH, against
levels 1 to 3. A logistic regression over the shipped static embeddings ({fitted:,} problems, 379 weights and a bias, in
`weights.json`). `shared/models/difficulty.py` reads it with numpy alone; `docs/how-to/routing.md` says what it is for.

Licence: MIT, as the data's (MATH, Hendrycks et al. 2021).

Made by this file's recipe, in two minutes on a processor; do not edit by hand:

    .venv/bin/pip install -c requirements/base.txt -r requirements/train.in
    .venv/bin/python -m services.judge.difficulty --data MATH

## Data

MATH's training part, the two problems of "Level ?" left out. Of every subject and level a fifth is held out, by the
SHA-256 of the problem's id. The strength of the penalty was chosen by cross-validation inside the fitted part. Test-dev
is 1,000 of MATH's test problems, looked at for these tables only; nothing was chosen by it.

Levels 1 to 3 are called easy because the split is then nearly even, and because easy-to-hard generalisation is studied
on MATH with the same border (Sun et al. 2024).

All intervals are at 95 %: shares by Wilson, areas under the ROC curve by bootstrap over problems.
"""
CALIBRATION = """
Brier score {:.3f}; mean distance between probability and share of hard problems {:.3f}:
"""
LIMITS = """\
## Limits

- It is a weak classifier: of a hard and an easy problem drawn at random it ranks three pairs out of four rightly. Words
  (TF-IDF), and length beside the embeddings, are separably better. The embeddings alone are shipped: the paper proposes
  to classify what a question means, their vectors are there already, and 379 numbers can be looked at.
- Levels are the contests' and the annotators', not a measure of what a model finds hard. Most of its errors are on
  levels 3 and 4, on both sides of the border.
- It is a little worse on test-dev than on the held-out fifth: the embeddings were refined on all of MATH's training
  part, problems and solutions, though without levels. Quote test-dev.
- English and mathematics of MATH's kind only. Chinese questions, and questions without a known word, get no probability
  at all. Elsewhere it gives a number that means nothing: in the shipped problem world a question names two digits and
  an operator, and nothing in it tells the difficulty (`docs/how-to/routing.md`).
"""


def render(evaluation: ClassifierEvaluation) -> str:
    """Render the card as Markdown."""
    sections = [HEAD.format(fitted=evaluation.fitted)]
    sections += [_render_part(name, part, evaluation.strengths) for name, part in evaluation.parts.items()]
    return "\n".join([*sections, LIMITS])


def _render_part(name: str, part: PartFigures, strengths: dict[str, float]) -> str:
    shipped = part.shipped
    bins = ((f"{each.probability:.2f}", str(each.n), _format_share(each.hard)) for each in shipped.calibration)
    groups = (_render_group(name, each) for name, each in (shipped.levels | shipped.subjects).items())
    thresholds = (
        (f"{each.threshold:g}", _format_share(each.easy), _format_share(each.hard_among_easy)) for each in shipped.cuts
    )
    return "\n".join(
        [
            f"## On {name}, {shipped.n:,} problems\n",
            _render_table(
                ("classifier", "C", "accuracy at 0.5", "ROC AUC", "shipped one's AUC is larger by"),
                _list_rivals(part, strengths),
            ),
            CALIBRATION.format(shipped.brier, shipped.calibration_error),
            _render_table(("probability", "problems", "hard"), bins),
            "",
            _render_table(("level or subject", "problems", "called hard", "called rightly", "ROC AUC"), groups),
            "\nWhat a threshold of `route` does:\n",
            _render_table(("threshold", "take the rule path", "of these hard"), thresholds),
            "",
        ]
    )


def _list_rivals(part: PartFigures, strengths: dict[str, float]) -> Iterable[Sequence[str]]:
    shipped = part.shipped
    yield (
        "**embeddings (shipped)**",
        f"{strengths['embeddings']:g}",
        _format_share(shipped.accuracy),
        _format_area(shipped.auc),
        "",
    )
    for kind, rival in part.rivals.items():
        yield (
            kind,
            f"{strengths[kind]:g}",
            _format_share(rival.accuracy),
            _format_area(rival.auc),
            _format_area(rival.advantage),
        )
    yield "everything hard", "", f"{100 * shipped.hard:.1f} %", "0.5", ""


def _render_group(name: str, group: GroupFigures) -> Sequence[str]:
    return (
        name,
        str(group.n),
        _format_share(group.called_hard),
        _format_share(group.accuracy),
        _format_area(group.auc) if group.auc else "",
    )


def _format_share(figure: Interval) -> str:
    if figure.value is None:
        return "none"
    return f"{100 * figure.value:.1f} % ({100 * figure.low:.1f} to {100 * figure.high:.1f})"


def _format_area(figure: Interval) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def _render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
