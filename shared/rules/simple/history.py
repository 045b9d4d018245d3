"""Who was linked to whom, and when: the index that the miner and the predictor read.

A link is a relation read in a direction: `2 * relation` from its subject to its object, `2 * relation + 1` back. An
anchor is a link and the entity that it leads to. A trail is an entity and one of its anchors; its moments are the steps
at which the link held between them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph, steps

Numbers = NDArray[np.int64]
ROWS = 1 << 19
"""Rows that are worked on at once: what bounds the memory of mining."""


class Events(NamedTuple):
    """All moments, sorted by what they are looked up by (the entity or the anchor of their trail), then by step."""

    key: Numbers
    """(2 * facts,): number of the entity or anchor * (steps + 1) + place of the step."""
    moment: Numbers
    """(2 * facts,)"""


class History(NamedTuple):
    """The trails of a graph, sorted by entity, then anchor."""

    times: Numbers
    """Distinct steps, ascending."""
    moments: Numbers
    """(2 * facts,), ascending: trail * (steps + 1) + place of the step in `times`."""
    start: Numbers
    """(trails + 1,): where each trail's moments begin."""
    entity: Numbers
    """(trails,), ascending."""
    anchor: Numbers
    """(trails,)"""
    link: Numbers
    """(anchors,), ascending."""
    target: Numbers
    """(anchors,)"""
    by_entity: Events
    by_anchor: Events

    @property
    def base(self) -> int:
        """What places of steps are counted by in keys."""
        return len(self.times) + 1

    def within(self, events: Events, numbers: Numbers, at: Numbers, window: int) -> tuple[Numbers, Numbers]:
        """Where the events of each number in the `window` steps before its step `at` begin and end."""
        first, end = np.searchsorted(self.times, at - window), np.searchsorted(self.times, at)
        return (
            np.searchsorted(events.key, numbers * self.base + first),
            np.searchsorted(events.key, numbers * self.base + end),
        )

    def seen(self, trails: Numbers, at: int, window: Numbers) -> tuple[Numbers, Numbers]:
        """How long before `at` each trail was last seen, and at how many of the `window` steps before.

        The distance is 0 where it was not seen before.
        """
        key = trails * self.base
        until = np.searchsorted(self.moments, key + np.searchsorted(self.times, at))
        often = until - np.searchsorted(self.moments, key + np.searchsorted(self.times, at - window))
        before = until > self.start[trails]
        last = self.times[(self.moments[until - 1] - key) * before]
        return np.where(before, at - last, 0), often


def read(graph: Graph) -> History:
    """Both readings of every fact.

    Raises:
        ValueError: the graph is static.
    """
    times, rank = np.unique(steps(graph), return_inverse=True)
    subject, relation, object_ = graph.triples.astype(np.int64).T
    entities, base = max(len(graph.entities), 1), len(times) + 1
    ends = np.concatenate([2 * relation * entities + object_, (2 * relation + 1) * entities + subject])
    anchors, anchor = np.unique(ends, return_inverse=True)
    width = max(len(anchors), 1)
    trails, trail = np.unique(np.concatenate([subject, object_]) * width + anchor, return_inverse=True)
    moments = np.sort(trail * base + np.tile(rank, 2))
    entity, anchor = np.divmod(trails, width)
    return History(
        times=times,
        moments=moments,
        start=np.searchsorted(moments, np.arange(len(trails) + 1) * base),
        entity=entity,
        anchor=anchor,
        link=anchors // entities,
        target=anchors % entities,
        by_entity=_events(entity[moments // base] * base + moments % base),
        by_anchor=_events(anchor[moments // base] * base + moments % base),
    )


def spread(first: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """All numbers of the ranges `first` to `end`, after the place of the range that each is of."""
    lengths = end - first
    owner = np.repeat(np.arange(len(first)), lengths)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)


def portions(first: Numbers, end: Numbers) -> Iterator[slice]:
    """Neighbouring ranges that have up to `ROWS` numbers together, or one range that has more."""
    reached = np.cumsum(end - first)
    done = 0
    while done < len(first):
        behind = int(reached[done - 1]) if done else 0
        after = max(int(np.searchsorted(reached, behind + ROWS, side="right")), done + 1)
        yield slice(done, after)
        done = after


def _events(keys: Numbers) -> Events:
    order = np.argsort(keys, kind="stable")
    return Events(keys[order], order)
