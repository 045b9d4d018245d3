"""Other wordings of a question that the judge model writes, and the searches for them."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from shared.contracts.calls import Write
from shared.contracts.params import Params
from shared.contracts.replies import Failure, Generated
from shared.contracts.samples import Decision
from shared.rag.cleaning import plain
from shared.rag.enhancement import Enhanced
from shared.rag.hyde import drafts, hypotheses
from shared.rag.paths import ORIGINAL, Path, both, by_hypotheses
from shared.rag.rewriting import decompose, decomposed, rewrite, rewritten


class Wordings(NamedTuple):
    """What the model has written."""

    rewritten: tuple[str, ...] = ()
    """One at most."""
    subqueries: tuple[str, ...] = ()
    hypothetical: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


def asked(question: str, params: Params) -> list[Write]:
    """Everything that the job wants written, at once: nothing of it needs another's reply."""
    enhance = params.enhance
    return [
        *([rewrite(question, enhance)] if enhance.rewrite else []),
        *([decompose(question, enhance)] if enhance.decompose else []),
        *(drafts(question, params.hyde) if enhance.hyde else []),
    ]


def read(question: str, replies: Sequence[Generated | Failure], params: Params) -> Wordings:
    """The replies to `asked`, in its order."""
    left, enhance = iter(replies), params.enhance
    one = [rewritten(question, reply) for reply in islice(left, int(enhance.rewrite))]
    several = [decomposed(question, reply, enhance) for reply in islice(left, int(enhance.decompose))]
    made_up = hypotheses(question, tuple(left))
    return Wordings(
        rewritten=tuple(query for written in one for query in written.queries),
        subqueries=tuple(query for written in several for query in written.queries),
        hypothetical=made_up.texts,
        decisions=(
            *(written.decision for written in one + several),
            *([made_up.decision()] if made_up.texts or made_up.failures else []),
        ),
    )


def at_once(question: str, ready: Enhanced, params: Params) -> list[Path]:
    """Searches for the question as it was asked, and as the rules have widened it, if they did."""
    weights = (ready.dense, ready.sparse)
    same = plain(ready.widened) == plain(question).strip()
    return both(ORIGINAL, question, weights, params) + ([] if same else both("widened", ready.widened, weights, params))


def afterwards(question: str, ready: Enhanced, wordings: Wordings, params: Params) -> list[Path]:
    """Searches for what the model has written: the sub-queries together weigh as much as one wording."""
    share = 1 / max(1, len(wordings.subqueries))
    paths = [
        path for query in wordings.rewritten for path in both("rewritten", query, (ready.dense, ready.sparse), params)
    ]
    for number, query in enumerate(wordings.subqueries, start=1):
        if query not in wordings.rewritten:
            paths += both(f"sub-query {number}", query, (ready.dense * share, ready.sparse * share), params)
    return paths + by_hypotheses(question, wordings.hypothetical, ready.dense, params)
