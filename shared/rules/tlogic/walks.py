"""Temporal random walks back in time that return to where they began (TLogic, section 4.1)."""

from collections.abc import Callable

import numpy as np

from shared.rules.tlogic.edges import Edges, Integers, Sorted, Spans

Draw = Callable[[Sorted, Spans, np.random.Generator], Integers]
"""A place in each span; none of them is empty."""


def walk(edges: Edges, starts: Integers, length: int, walks: int, draw: Draw, rng: np.random.Generator) -> Integers:
    """(walks that returned, 1 + length): the edges of each, the first drawn from `starts`.

    The second edge is strictly earlier than the first, further ones are not later than the one before; none is the
    exact inverse of the one before it.
    """
    path = rng.choice(starts, walks)[:, None]
    for step in range(1, length + 1):
        at, ranks = edges.object[path[:, -1]], edges.rank[path[:, -1]]
        if step == length:
            choices, groups = edges.by_pair, edges.pairs(at, edges.subject[path[:, 0]])
        else:
            choices, groups = edges.by_subject, at
        spans = choices.between(groups, 0, ranks if step == 1 else ranks + 1)
        backs = choices.places[edges.turned(path[:, -1])]
        kept, drawn = _draw_without(choices, spans, backs, draw, rng)
        path = np.column_stack((path[kept], choices.edges[drawn]))
    return path


def _draw_without(
    choices: Sorted, spans: Spans, excluded: Integers, draw: Draw, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Which spans have a place beside the excluded one, and the place drawn in each of them.

    An excluded place is of its span's last time, as the span's last place is: with equal weights, one stands for the
    other.
    """
    lies_inside = (spans.start <= excluded) & (excluded < spans.stop)
    stop = spans.stop - lies_inside
    kept = np.flatnonzero(spans.start < stop)
    drawn = draw(choices, Spans(spans.start[kept], stop[kept]), rng)
    return kept, np.where(lies_inside[kept] & (drawn == excluded[kept]), stop[kept], drawn)


def draw_uniformly(_choices: Sorted, spans: Spans, rng: np.random.Generator) -> Integers:
    """All places alike."""
    return rng.integers(spans.start, spans.stop)


def draw_recent(choices: Sorted, spans: Spans, rng: np.random.Generator) -> Integers:
    """Each place with a weight of exp(its time); spans begin where their group does."""
    weights = choices.log_weights
    wanted = weights[spans.stop - 1] + np.log1p(-rng.random(len(spans.stop)))
    low, high = spans.start, spans.stop - 1
    while (low < high).any():  # bisection in all spans at once
        middle = (low + high) // 2
        is_below = weights[middle] < wanted
        low, high = np.where(is_below, np.minimum(middle + 1, high), low), np.where(is_below, high, middle)
    return low
