"""Parts of a pipeline that wait side by side: as many rounds of calls as the longest of them needs."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from shared.contracts.calls import Call

T = TypeVar("T")
Part = Generator[Sequence[Call], Any, T]
"""Yields calls, is sent their replies in order, and returns a result."""


def in_step(parts: Sequence[Part[T]]) -> Part[list[T]]:
    """Run all parts, and yield together what they wait for; their results, in their order."""
    results: dict[int, T] = {}
    waiting = {place: _advanced(part, None, place, results) for place, part in enumerate(parts)}
    while waiting := {place: calls for place, calls in waiting.items() if place not in results}:
        replies = iter((yield [call for calls in waiting.values() for call in calls]))
        answers = {place: [next(replies) for _ in calls] for place, calls in waiting.items()}
        waiting = {place: _advanced(parts[place], given, place, results) for place, given in answers.items()}
    return [results[place] for place in range(len(parts))]


def _advanced(part: Part[T], replies: Any, place: int, results: dict[int, T]) -> Sequence[Call]:
    """What the part waits for next; where it has ended, its result is among `results`."""
    try:
        return part.send(replies)
    except StopIteration as ended:
        results[place] = ended.value
        return ()
