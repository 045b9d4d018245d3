"""Draw questions that held-out facts answer; their order depends only on the question and a seed."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shared import canonical
from shared.questions.held_out import HeldOut, Numbers
from shared.questions.leads import Side

SIDES: Sequence[Side] = ("object", "subject")


class Question(NamedTuple):
    """Asks for one end of all facts that share the other end, the relation and the time."""

    relation: int
    side: Side
    """The end that is asked for."""
    time: int
    """0 if facts have no times."""
    entity: int
    """The other end."""
    answers: Sequence[int]
    """Answers that held-out facts give."""


class Pool(NamedTuple):
    """All questions of one upload."""

    rows: Numbers
    """(answers, 5): relation, place of the side in `SIDES`, time, entity, answer; sorted, so that a question's rows are
    adjacent."""
    starts: Numbers
    """(questions + 1,): where the rows of each question begin."""
    unknown_entity: int
    """Questions about an entity that the graph lacks; they are left out."""

    @property
    def size(self) -> int:
        """Number of questions that the pool has."""
        return len(self.starts) - 1

    def at(self, place: int) -> Question:
        """Return the question at this place."""
        first, end = self.starts[place : place + 2].tolist()
        relation, side, time, entity, _ = self.rows[first].tolist()
        return Question(relation, SIDES[side], time, entity, self.rows[first:end, 4].tolist())


def pool_of(held_out: HeldOut, sides: Sequence[Side], entities: int) -> Pool:
    """Collect the questions for these sides; `entities` is the number of the graph's entities."""
    subject, relation, object_, time = held_out.facts.T
    ends = {"object": (subject, object_), "subject": (object_, subject)}
    columns = [(relation, np.full_like(relation, SIDES.index(side)), time, *ends[side]) for side in sides]
    rows = np.unique(np.concatenate([np.column_stack(each) for each in columns]), axis=0)
    known = rows[:, 3] < entities
    strange = _starts(rows[~known])
    return Pool(rows[known], _starts(rows[known]), len(strange) - 1)


def draw(pool: Pool, seed: int, name: Callable[[Question], Sequence[str | int]]) -> Iterator[Question]:
    """Order all questions by the hash of seed and `name`, so that any first part is a uniform sample."""
    hashes = [hashlib.sha256(canonical.encode([seed, *name(pool.at(place))])).digest() for place in range(pool.size)]
    return (pool.at(place) for place in sorted(range(pool.size), key=hashes.__getitem__))


def _starts(rows: Numbers) -> Numbers:
    """Return the places where a question begins, and the number of rows."""
    begins = np.append(True, (rows[1:, :4] != rows[:-1, :4]).any(axis=1))[: len(rows)]
    return np.append(np.flatnonzero(begins), len(rows))
