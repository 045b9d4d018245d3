"""Generate the answer from as many documents as the model's context holds: the last step of a pipeline.

Only the model server knows how many tokens a prompt has; it refuses a prompt that does not fit before it computes
anything. So the worst document is left out and the question is asked again, until the prompt fits. Each refusal is a
stored reply: a replay and an audit leave out the same documents.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec

from shared.calls import Generate, Yielded
from shared.params import CompressParams
from shared.rag.compression import compress
from shared.rag.provenance import make_generation, make_outcome
from shared.replies import Failure, FailureKind, Generated, require
from shared.samples import Decision, Library, Outcome, Trace

Prompt = Callable[[str, tuple[str, ...], str], Generate]
"""Makes the generator's call from the question, the documents' hashes, and a passage that replaces the documents."""


class PromptDocuments(NamedTuple):
    """The passage that the prompt shows of some documents."""

    documents: tuple[str, ...]
    """Hashes, in prompt order."""
    passage: str = ""
    """A text that replaces the documents; empty if they are shown whole."""
    decisions: tuple[Decision, ...] = ()
    """The decisions by which the passage was made."""


class GeneratedReplies(NamedTuple):
    """The generator's text, written with the documents that fitted."""

    replies: list[Generated | Failure]
    """One reply for each prompt, in their order."""
    documents: tuple[str, ...]
    """The documents in the prompts, in prompt order."""
    decisions: tuple[Decision, ...]
    """The decisions by which their passage was made and documents were left out."""


def answer(
    question: str,
    documents: Sequence[str],
    trace: Trace,
    show: Callable[[tuple[str, ...]], PromptDocuments] = PromptDocuments,
    prompt: Prompt = make_generation,
) -> Generator[Yielded, Any, Outcome]:
    """Answer a question with `documents`, best first; the trace names those that did not fit.

    `show` makes the prompt's part from the remaining documents. If none remain, the question is asked alone.

    Raises:
        CallFailed: the generator failed; `context_exceeded` if the question alone does not fit.
    """
    written = yield from write(lambda shown: [prompt(question, shown.documents, shown.passage)], documents, show)
    trace = msgspec.structs.replace(trace, decisions=(*trace.decisions, *written.decisions))
    return make_outcome(require(written.replies[0]), written.documents, trace)


def write(
    prompts: Callable[[PromptDocuments], list[Generate]],
    documents: Sequence[str],
    show: Callable[[tuple[str, ...]], PromptDocuments] = PromptDocuments,
) -> Generator[Yielded, Any, GeneratedReplies]:
    """Generate replies to prompts over `documents`, best first, leaving out those that do not fit.

    A document is left out if every prompt was refused for its length; without any, the replies are what they are.
    """
    left, dropped = tuple(documents), list[Decision]()
    while True:
        shown = show(left)
        replies: list[Generated | Failure] = yield prompts(shown)
        refusals = [reply for reply in replies if _is_too_long(reply)]
        if not shown.documents or len(refusals) < len(replies):
            return GeneratedReplies(replies, shown.documents, (*shown.decisions, *dropped))
        *rest, worst = (document for document in left if document in shown.documents)
        left = tuple(rest)
        dropped.append(_make_drop_decision(worst, refusals[0]))


def _is_too_long(reply: Generated | Failure) -> TypeGuard[Failure]:
    return isinstance(reply, Failure) and reply.kind is FailureKind.CONTEXT_EXCEEDED


def _make_drop_decision(document: str, refusal: Failure) -> Decision:
    return Decision(
        stage="context",
        action="drop",
        detail={"document": document, "reason": refusal.detail},
        fallback=refusal.kind.value,
    )


def compress_context(
    question: str, documents: tuple[str, ...], library: Library, params: CompressParams
) -> PromptDocuments:
    """Compress the documents if compression is enabled."""
    if not params.enabled or not documents:
        return PromptDocuments(documents)
    found = compress(question, documents, library, params)
    return PromptDocuments(found.documents, found.passage, (found.decision,))
