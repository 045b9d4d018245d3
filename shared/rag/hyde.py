"""Hypothetical documents (HyDE, Gao et al. 2023): a made-up answer lies nearer to real ones than the question does.

They are searched with and thrown away: what a model made up is never context.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shared.contracts.calls import MAX_QUESTION, Write
from shared.contracts.params import HydeParams
from shared.contracts.replies import Failure, FailureKind, Generated
from shared.contracts.samples import Decision
from shared.rag.language import localised
from shared.rag.rewriting import is_about

END = "\n\n\n"
"""Where the authors' code stops; here the text is cut instead, which leaves the same."""


class Hypotheses(NamedTuple):
    """What came of the writing."""

    texts: tuple[str, ...]
    """In the order in which they were drawn."""
    failures: tuple[FailureKind, ...]
    """Of those that were not written."""

    def decision(self) -> Decision:
        """How many there are; where there is none, the question's own vector is searched with."""
        failed = [kind.value for kind in self.failures]
        return Decision(
            stage="hyde",
            action="mean" if self.texts else "plain",
            detail={"texts": len(self.texts), "failed": failed},
            fallback=None if self.texts else next(iter(failed), None),
        )


def drafts(question: str, params: HydeParams) -> list[Write]:
    """The calls that write the hypothetical documents: samples of one prompt, in the question's language."""
    passage = params.style == "passage"
    template = localised("hyde-passage", question) if passage else localised("hyde-solution", question)
    return [
        Write(template=template, decoding=params.decoding, slots={"question": question}, draw=draw)
        for draw in range(params.documents)
    ]


def hypotheses(question: str, replies: Sequence[Generated | Failure]) -> Hypotheses:
    """The texts of those replies that are about the question; one that the token limit ended is as good as another.

    Small models write anything: what shares no term with the question would lead the search away from it.
    """
    texts, failures = [], []
    for reply in replies:
        if isinstance(reply, Failure):
            failures.append(reply.kind)
        elif is_about(question, text := reply.text.strip().partition(END)[0].strip()[:MAX_QUESTION]):
            texts.append(text)
        else:
            failures.append(FailureKind.UNPARSED)
    return Hypotheses(tuple(texts), tuple(failures))
