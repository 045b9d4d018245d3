"""What the rules of one head have to predict: the facts of its link."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.simple.history import Events, History, Numbers, portions, spread


class Heads(NamedTuple):
    """The facts of a link, sorted by target, and the questions that they answer: an entity and a step."""

    link: int
    source: Numbers
    """(facts,)"""
    target: Numbers
    """(facts,), ascending."""
    at: Numbers
    """(facts,): the step."""
    question: Numbers
    """(facts,): which question a fact answers."""
    asked: Numbers
    """(questions,): the entity, ascending."""
    asked_at: Numbers
    """(questions,): the step."""


class Examples(NamedTuple):
    """Trails that were seen within a window before a step."""

    owner: Numbers
    """What the trail was looked up for."""
    trail: Numbers
    distance: Numbers
    often: Numbers
    """Like those of `tally.Tally`."""

    def where(self, kept: NDArray[np.bool_]) -> "Examples":
        """The kept rows."""
        return Examples(*(part[kept] for part in self))


def heads_of(history: History, link: int) -> Heads:
    """The facts of `link`; none where the graph has none."""
    base, trails = history.base, np.flatnonzero(history.link[history.anchor] == link)
    owner, moments = spread(history.start[trails], history.start[trails + 1])
    source, target = history.entity[trails[owner]], history.target[history.anchor[trails[owner]]]
    rank = history.moments[moments] % base
    order = np.lexsort((rank, source, target))
    source, target, rank = source[order], target[order], rank[order]
    asked, question = np.unique(source * base + rank, return_inverse=True)
    return Heads(link, source, target, history.times[rank], question, asked // base, history.times[asked % base])


def examples(history: History, events: Events, numbers: Numbers, at: Numbers, window: int) -> Iterator[Examples]:
    """The trails with events of each number in the `window` steps before its step `at`.

    The owner is the place of the number. Rows of one owner come together, by ascending trail.
    """
    first, end = history.within(events, numbers, at, window)
    for part in portions(first, end):
        owner, place = spread(first[part], end[part])
        packed = np.sort(owner * len(history.moments) + events.moment[place])
        owner, moment = np.divmod(packed, max(len(history.moments), 1))
        trail, rank = np.divmod(history.moments[moment], history.base)
        last = np.flatnonzero(np.append((np.diff(owner) > 0) | (np.diff(trail) > 0), True)[: len(owner)])
        owner, trail = owner[last] + part.start, trail[last]
        yield Examples(owner, trail, at[owner] - history.times[rank[last]], np.diff(last, prepend=-1))
