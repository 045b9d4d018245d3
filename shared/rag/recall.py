"""Search with several wordings of a question: its own, those of the rules, and those that the judge model writes."""

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Yielded
from shared.params import Params
from shared.rag import wordings
from shared.rag.enhancement import enhance
from shared.rag.paths import RecallPath, gather, merge_paths
from shared.replies import Retrieved
from shared.samples import Library, Trace


class RecallResult(NamedTuple):
    """The lists of all searches, and their fusion."""

    lists: Mapping[RecallPath, Retrieved]
    """The found lists, by their search."""
    trace: Trace
    """All lists fused, and what was done."""
    vague: bool
    """The question says too little to tell a good document by."""


def recall(question: str, params: Params, library: Library) -> Generator[Yielded, Any, RecallResult]:
    """Enhance the question, have it reworded, search for every wording, and fuse the lists.

    Raises:
        CallFailed: every search failed.
    """
    ready = enhance(question, params.enhance, params.fusion)
    paths = wordings.make_first_searches(question, ready, params)
    replies = yield [*(path.call for path in paths), *wordings.ask_for_rewordings(ready.question, params)]
    written = wordings.read_rewordings(ready.question, replies[len(paths) :], params)
    further = wordings.make_later_searches(question, ready, written, params)
    more = (yield [path.call for path in further]) if further else []
    gathered = gather(paths + further, [*replies[: len(paths)], *more])
    trace = merge_paths(question, gathered.lists, library, params)
    done = ready.decisions + written.decisions + gathered.decisions + trace.decisions
    return RecallResult(gathered.lists, replace(trace, decisions=done), ready.vague is not None)
