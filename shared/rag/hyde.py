"""Write hypothetical documents (HyDE, Gao et al. 2023): they are closer to real documents than the question is.

They are searched with and thrown away: what a model made up is never context.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shared.calls import MAX_QUESTION, Write
from shared.mathtext.reasoning_blocks import remove_reasoning
from shared.params import HydeParams
from shared.rag.language import localised
from shared.rag.rewriting import is_refusal, remove_introduction, says_something
from shared.replies import Failure, FailureKind, Generated
from shared.samples import Decision

END = "\n\n\n"
"""Where the authors' code stops; here the text is cut instead, which leaves the same."""


class Hypotheses(NamedTuple):
    """The usable hypothetical documents."""

    texts: tuple[str, ...]
    """The texts in the order in which they were drawn."""
    failures: tuple[FailureKind, ...]
    """Kinds of failure of the documents that were not written."""

    def decision(self) -> Decision:
        """Describe how many there are; if there are none, the question's own vector is searched with."""
        failed = [kind.value for kind in self.failures]
        return Decision(
            stage="hyde",
            action="mean" if self.texts else "plain",
            detail={"texts": len(self.texts), "failed": failed},
            fallback=None if self.texts else next(iter(failed), None),
        )


def draft_hypotheses(question: str, params: HydeParams) -> list[Write]:
    """Make the calls that write hypothetical documents: samples of one prompt, in the question's language."""
    passage = params.style == "passage"
    template = localised("hyde-passage", question) if passage else localised("hyde-solution", question)
    return [
        Write(template=template, decoding=params.decoding, slots={"question": question}, draw=draw)
        for draw in range(params.documents)
    ]


def read_hypotheses(question: str, replies: Sequence[Generated | Failure]) -> Hypotheses:
    """Return the texts of the replies, without reasoning; truncated ones are as good as others.

    Refusals and texts that say nothing are left out. Whether a text is about the question is not asked, for the reasons
    in `shared.rag.rewriting`; the question's own vector is part of the mean that is searched with.
    """
    texts, failures = [], []
    for reply in replies:
        if isinstance(reply, Failure):
            failures.append(reply.kind)
            continue
        text = remove_introduction(remove_reasoning(reply.text)).partition(END)[0].strip()[:MAX_QUESTION]
        if is_refusal(text) or not says_something(question, text):
            failures.append(FailureKind.UNPARSED)
        else:
            texts.append(text)
    return Hypotheses(tuple(texts), tuple(failures))
