"""Answering many searches at once: per index one batch, near-duplicates of each question dropped."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
from anyio import create_task_group, to_thread

from services.retriever.duplicates import near_duplicates
from services.retriever.ports import Match
from services.retriever.shelf import Problems, Shelf
from shared.contracts.calls import Retrieved
from shared.contracts.documents import Hit

SPARE = 10
"""So many more than k are fetched, so that dropped duplicates leave no gap."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one index."""

    index: int
    question: str
    k: int


async def answer(shelf: Shelf, problems: Problems, searches: Sequence[Search]) -> list[Retrieved]:
    """A reply per search, in order.

    Raises:
        NotFound, Unavailable: an index does not exist or cannot be used; nothing is answered then.
    """
    found = await _matches(shelf, searches)
    known = await problems.of(match.document for matches in found for match in matches)

    def work() -> list[Retrieved]:
        return [without_duplicates(search, matches, known) for search, matches in zip(searches, found, strict=True)]

    return await to_thread.run_sync(work)


def without_duplicates(search: Search, matches: Sequence[Match], problems: dict[str, str]) -> Retrieved:
    """The first k of the first k + `SPARE` matches that are no near-duplicate of the question; ranks from 1."""
    fetched = matches[: search.k + SPARE]
    asked = [(match.document, problems.get(match.document, "")) for match in fetched]
    dropped = near_duplicates(search.question, asked)
    kept = [match for match in fetched if match.document not in dropped][: search.k]
    hits = (Hit(document=match.document, rank=rank, score=match.score) for rank, match in enumerate(kept, start=1))
    return Retrieved(hits=tuple(hits), duplicates=tuple(dropped))


async def _matches(shelf: Shelf, searches: Sequence[Search]) -> list[list[Match]]:
    positions: defaultdict[int, list[int]] = defaultdict(list)
    for position, asked in enumerate(searches):
        positions[asked.index].append(position)
    found: list[list[Match]] = [[] for _ in searches]
    indexes = {number: await shelf.index(number) for number in positions}

    async def search(number: int) -> None:
        questions = [searches[position].question for position in positions[number]]
        k = max(searches[position].k for position in positions[number]) + SPARE
        matches = await to_thread.run_sync(indexes[number].search, questions, k)
        for position, each in zip(positions[number], matches, strict=True):
            found[position] = each

    async with create_task_group() as group:  # FAISS leaves the interpreter to the others while it searches
        for number in indexes:
            group.start_soon(search, number)
    return found
