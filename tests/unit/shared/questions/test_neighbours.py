"""Negatives: facts of the same entity or relation that are known and lead to no answer."""

import numpy as np
import pytest

from shared.questions.items import ALWAYS
from shared.questions.training import MOST, Neighbours
from shared.rules.graph import Graph
from shared.samples import FactQuery

ENTITY_FACTS, RELATION_FACTS = range(20), range(20, 60)
TRIPLES = [(0, 1, at) for at in range(1, 11)] + [(at, 1, 0) for at in range(1, 11)] + [
    (at, 0, at + 1) for at in range(11, 51)
]  # fmt: skip
QUERY = FactQuery(relation="asked", entity="e0")
"""Entity 0 has the facts 0 to 19, of the other relation; those of its relation follow, and 60 is of neither."""


def neighbours(*, timed: bool = False) -> Neighbours:
    triples = np.array([*TRIPLES, (70, 1, 71)], np.int32)
    times = np.arange(len(triples), dtype=np.int64) if timed else None
    return Neighbours(Graph(triples, times, [f"e{at}" for at in range(72)], ["asked", "other"]))


def draw(
    query: FactQuery = QUERY, before: int = ALWAYS, oracle: frozenset[str] = frozenset(), seed: int = 0
) -> list[int]:
    found = neighbours(timed=before != ALWAYS).draw(query, before, oracle, np.random.default_rng(seed))
    assert len(set(found)) == len(found)
    return [int(each) for each in found]


def test_half_of_them_are_the_entitys_and_the_others_the_relations() -> None:
    found = draw()
    assert len(found) == MOST
    assert sum(each in ENTITY_FACTS for each in found) == MOST // 2
    assert sum(each in RELATION_FACTS for each in found) == MOST // 2
    assert draw() == found != draw(seed=1)


def test_where_one_side_has_too_few_the_other_has_more() -> None:
    assert set(draw(FactQuery(relation="unknown", entity="e0"))) <= set(ENTITY_FACTS)
    assert set(draw(FactQuery(relation="asked", entity="stranger"))) <= set(RELATION_FACTS)
    assert {len(draw(FactQuery(relation="asked", entity="stranger"), seed=seed)) for seed in range(5)} == {MOST}
    assert draw(FactQuery(relation="unknown", entity="stranger")) == []


def test_oracle_documents_are_none_of_them() -> None:
    oracle = frozenset(str(each) for each in [*ENTITY_FACTS, *RELATION_FACTS] if each not in (3, 30))
    assert sorted(draw(oracle=oracle)) == [3, 30]


@pytest.mark.parametrize(("before", "known"), [(25, range(25)), (2, range(2)), (0, range(0))])
def test_what_comes_later_than_the_question_is_not_known(before: int, known: range) -> None:
    found = draw(before=before)
    assert set(found) <= set(known)
    assert len(found) == min(MOST, len(known))
