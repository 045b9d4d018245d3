"""Run parts of a pipeline side by side, in as many rounds of calls as the longest part needs."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from shared.calls import Call

T = TypeVar("T")
Part = Generator[Sequence[Call], Any, T]
"""Yields calls, is sent their replies in order, and returns a result."""


def run_in_step(parts: Sequence[Part[T]]) -> Part[list[T]]:
    """Run all parts, yield their calls together, and return their results in order."""
    results: dict[int, T] = {}
    waiting = {place: _advance(part, None, place, results) for place, part in enumerate(parts)}
    while waiting := {place: calls for place, calls in waiting.items() if place not in results}:
        replies = iter((yield [call for calls in waiting.values() for call in calls]))
        answers = {place: [next(replies) for _ in calls] for place, calls in waiting.items()}
        waiting = {place: _advance(parts[place], given, place, results) for place, given in answers.items()}
    return [results[place] for place in range(len(parts))]


def _advance(part: Part[T], replies: Any, place: int, results: dict[int, T]) -> Sequence[Call]:
    """Return the calls that the part waits for; if it has ended, store its result in `results`."""
    try:
        return part.send(replies)
    except StopIteration as ended:
        results[place] = ended.value
        return ()
