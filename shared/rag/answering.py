"""The last step of a pipeline: generate from as many documents as the model's context holds.

How many tokens a prompt has is known to the model server alone, which refuses one that does not fit before it computes
anything. So the worst document is left out and the question is asked again, until the prompt fits. Each refusal is a
stored reply: a replay and an audit leave out the same documents.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec

from shared.contracts.calls import Generate, Yielded
from shared.contracts.params import CompressParams
from shared.contracts.replies import Failure, FailureKind, Generated, require
from shared.contracts.samples import Decision, Library, Outcome, Trace
from shared.rag.compression import compress
from shared.rag.provenance import answered, generation

Prompt = Callable[[str, tuple[str, ...], str], Generate]
"""Makes the generator's call of the question, the documents' hashes, and a passage in the documents' place."""


class Shown(NamedTuple):
    """What the prompt shows of some documents."""

    documents: tuple[str, ...]
    """Hashes, in prompt order."""
    passage: str = ""
    """A text in the documents' place; empty where they are shown whole."""
    decisions: tuple[Decision, ...] = ()
    """How the passage was made."""


class Written(NamedTuple):
    """What the generator wrote with the documents that fitted."""

    replies: list[Generated | Failure]
    """One a prompt, in their order."""
    documents: tuple[str, ...]
    """Those that the prompts held, in prompt order."""
    decisions: tuple[Decision, ...]
    """How their passage was made, and which documents were left out."""


def answer(
    question: str,
    documents: Sequence[str],
    trace: Trace,
    show: Callable[[tuple[str, ...]], Shown] = Shown,
    prompt: Prompt = generation,
) -> Generator[Yielded, Any, Outcome]:
    """The outcome of a question with `documents`, best first; the trace names those that did not fit.

    `show` makes the prompt's part of the documents that are left. Without any, the question is asked alone.

    Raises:
        CallFailed: the generator failed; `context_exceeded` if the question alone does not fit.
    """
    written = yield from write(lambda shown: [prompt(question, shown.documents, shown.passage)], documents, show)
    trace = msgspec.structs.replace(trace, decisions=(*trace.decisions, *written.decisions))
    return answered(require(written.replies[0]), written.documents, trace)


def write(
    prompts: Callable[[Shown], list[Generate]],
    documents: Sequence[str],
    show: Callable[[tuple[str, ...]], Shown] = Shown,
) -> Generator[Yielded, Any, Written]:
    """The replies to prompts over `documents`, best first, of which those that do not fit are left out.

    A document is left out if every prompt was refused for its length; without any, the replies are what they are.
    """
    left, dropped = tuple(documents), list[Decision]()
    while True:
        shown = show(left)
        replies: list[Generated | Failure] = yield prompts(shown)
        refusals = [reply for reply in replies if _is_too_long(reply)]
        if not shown.documents or len(refusals) < len(replies):
            return Written(replies, shown.documents, (*shown.decisions, *dropped))
        *rest, worst = (document for document in left if document in shown.documents)
        left = tuple(rest)
        dropped.append(_dropped(worst, refusals[0]))


def _is_too_long(reply: Generated | Failure) -> TypeGuard[Failure]:
    return isinstance(reply, Failure) and reply.kind is FailureKind.CONTEXT_EXCEEDED


def _dropped(document: str, refusal: Failure) -> Decision:
    return Decision(
        stage="context",
        action="drop",
        detail={"document": document, "reason": refusal.detail},
        fallback=refusal.kind.value,
    )


def compressed(question: str, documents: tuple[str, ...], library: Library, params: CompressParams) -> Shown:
    """What compression leaves of the documents, where it is enabled."""
    if not params.enabled or not documents:
        return Shown(documents)
    found = compress(question, documents, library, params)
    return Shown(found.documents, found.passage, (found.decision,))
