"""Have the judge model reword a question, and make the searches for what it writes."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from shared.calls import Write
from shared.params import Params
from shared.rag.cleaning import normalise_characters
from shared.rag.enhancement import EnhancedQuestion
from shared.rag.hyde import draft_hypotheses, read_hypotheses
from shared.rag.paths import ORIGINAL, RecallPath, search_both, search_by_hypotheses
from shared.rag.rewriting import decompose, read_rewrite, read_subqueries, rewrite
from shared.replies import Failure, Generated
from shared.samples import Decision


class Rewordings(NamedTuple):
    """The wordings and hypothetical documents that the model has written."""

    rewritten: tuple[str, ...] = ()
    """One at most."""
    subqueries: tuple[str, ...] = ()
    hypothetical: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


def ask_for_rewordings(question: str, params: Params) -> list[Write]:
    """Make all calls that the job wants at once, because none needs another's reply."""
    enhance = params.enhance
    return [
        *([rewrite(question, enhance)] if enhance.rewrite else []),
        *([decompose(question, enhance)] if enhance.decompose else []),
        *(draft_hypotheses(question, params.hyde) if enhance.hyde else []),
    ]


def read_rewordings(question: str, replies: Sequence[Generated | Failure], params: Params) -> Rewordings:
    """Read the replies to `asked`, in its order."""
    left, enhance = iter(replies), params.enhance
    one = [read_rewrite(question, reply) for reply in islice(left, int(enhance.rewrite))]
    several = [read_subqueries(question, reply, enhance) for reply in islice(left, int(enhance.decompose))]
    hypotheses = read_hypotheses(question, tuple(left))
    return Rewordings(
        rewritten=tuple(query for written in one for query in written.queries),
        subqueries=tuple(query for written in several for query in written.queries),
        hypothetical=hypotheses.texts,
        decisions=(
            *(written.decision for written in one + several),
            *([hypotheses.decision()] if hypotheses.texts or hypotheses.failures else []),
        ),
    )


def make_first_searches(question: str, ready: EnhancedQuestion, params: Params) -> list[RecallPath]:
    """Make the searches for the original question and, if it was widened by rules, for the widened one."""
    weights = (ready.dense, ready.sparse)
    same = normalise_characters(ready.widened) == normalise_characters(question).strip()
    return search_both(ORIGINAL, question, weights, params) + (
        [] if same else search_both("widened", ready.widened, weights, params)
    )


def make_later_searches(
    question: str, ready: EnhancedQuestion, wordings: Rewordings, params: Params
) -> list[RecallPath]:
    """Make the searches for the model's texts; the sub-queries together weigh as much as one wording."""
    share = 1 / max(1, len(wordings.subqueries))
    paths = [
        path
        for query in wordings.rewritten
        for path in search_both("rewritten", query, (ready.dense, ready.sparse), params)
    ]
    for number, query in enumerate(wordings.subqueries, start=1):
        if query not in wordings.rewritten:
            paths += search_both(f"sub-query {number}", query, (ready.dense * share, ready.sparse * share), params)
    return paths + search_by_hypotheses(question, wordings.hypothetical, ready.dense, params)
