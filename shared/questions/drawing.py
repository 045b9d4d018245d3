"""Questions that held-out facts answer, drawn evenly: which come first depends on what they ask and a seed alone."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shared.contracts import canonical
from shared.questions.held_out import HeldOut, Numbers
from shared.questions.leads import Side

SIDES: Sequence[Side] = ("object", "subject")


class Question(NamedTuple):
    """One end of facts that share the other, the relation and the time."""

    relation: int
    side: Side
    """The end that is asked for."""
    time: int
    """0 where there is none."""
    entity: int
    """The other end."""
    answers: Sequence[int]
    """Those of the held-out facts."""


class Pool(NamedTuple):
    """All questions of one upload."""

    rows: Numbers
    """(answers, 5): relation, place of the side in `SIDES`, time, entity, answer; sorted, so that a question's are
    together."""
    starts: Numbers
    """(questions + 1,): where the rows of each question begin."""
    unknown_entity: int
    """Questions about an entity that the graph lacks; they are left out."""

    @property
    def size(self) -> int:
        """Questions."""
        return len(self.starts) - 1

    def at(self, place: int) -> Question:
        """One of them."""
        first, end = self.starts[place : place + 2].tolist()
        relation, side, time, entity, _ = self.rows[first].tolist()
        return Question(relation, SIDES[side], time, entity, self.rows[first:end, 4].tolist())


def pool_of(held_out: HeldOut, sides: Sequence[Side], entities: int) -> Pool:
    """The questions for these ends; `entities` is how many the graph has."""
    subject, relation, object_, time = held_out.facts.T
    ends = {"object": (subject, object_), "subject": (object_, subject)}
    columns = [(relation, np.full_like(relation, SIDES.index(side)), time, *ends[side]) for side in sides]
    rows = np.unique(np.concatenate([np.column_stack(each) for each in columns]), axis=0)
    known = rows[:, 3] < entities
    strange = _starts(rows[~known])
    return Pool(rows[known], _starts(rows[known]), len(strange) - 1)


def draw(pool: Pool, seed: int, name: Callable[[Question], Sequence[str | int]]) -> Iterator[Question]:
    """All questions in the order of the hashes of seed and `name`: the first so many are an even sample."""
    hashes = [hashlib.sha256(canonical.encode([seed, *name(pool.at(place))])).digest() for place in range(pool.size)]
    return (pool.at(place) for place in sorted(range(pool.size), key=hashes.__getitem__))


def _starts(rows: Numbers) -> Numbers:
    """Where another question begins, and the end."""
    begins = np.append(True, (rows[1:, :4] != rows[:-1, :4]).any(axis=1))[: len(rows)]
    return np.append(np.flatnonzero(begins), len(rows))
