"""What several wordings of a question find: its own, those of the rules, and those that the judge model writes."""

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.contracts.calls import Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Retrieved
from shared.contracts.samples import Library, Trace
from shared.rag import wordings
from shared.rag.enhancement import enhanced
from shared.rag.paths import Path, gather, merged


class Recalled(NamedTuple):
    """What was found."""

    lists: Mapping[Path, Retrieved]
    """By search."""
    trace: Trace
    """All lists fused, and what was done."""
    vague: bool
    """The question says too little to tell a good document by."""


def recall(question: str, params: Params, library: Library) -> Generator[Yielded, Any, Recalled]:
    """Make the question ready, have it reworded, search for every wording, and fuse the lists.

    Raises:
        CallFailed: every search failed.
    """
    ready = enhanced(question, params.enhance, params.fusion)
    paths = wordings.at_once(question, ready, params)
    replies = yield [*(path.call for path in paths), *wordings.asked(ready.question, params)]
    written = wordings.read(ready.question, replies[len(paths) :], params)
    further = wordings.afterwards(question, ready, written, params)
    more = (yield [path.call for path in further]) if further else []
    gathered = gather(paths + further, [*replies[: len(paths)], *more])
    trace = merged(question, gathered.lists, library, params)
    done = ready.decisions + written.decisions + gathered.decisions + trace.decisions
    return Recalled(gathered.lists, replace(trace, decisions=done), ready.vague is not None)
