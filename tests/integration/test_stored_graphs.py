"""Graphs in the database: arrays and names come back as they were, whatever the blocks."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from shared.errors import NotFound
from shared.replies import CorpusRecord, Document
from shared.rules.graph import Graph
from shared.storage import graphs as stored_graphs
from shared.storage.database import Database
from tests.integration.scene import scalar
from tests.integration.stored_graph import loaded

pytestmark = pytest.mark.anyio

STATIC = Graph(
    triples=np.array([[0, 0, 1], [1, 0, 2], [2, 1, 0]], np.int32),
    times=None,
    entities=["Ångström", 'the "Duke"', "東京"],
    relations=["knows", "Make_statement"],
)
TEMPORAL = STATIC._replace(times=np.array([735000, -1, 735000], np.int64))


async def documents() -> AsyncIterator[list[CorpusRecord]]:
    yield [CorpusRecord(external_id="0", document=Document(text="A fact."), meta={})]


@pytest.mark.parametrize("graph", [STATIC, TEMPORAL], ids=["static", "temporal"])
async def test_a_graph_comes_back_from_blocks_of_any_size(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graph: Graph
) -> None:
    monkeypatch.setattr(stored_graphs, "BLOCK_BYTES", 24)
    unit = None if graph.times is None else "step"
    made = await stored_graphs.create(database, "g", stored_graphs.GraphFacts(graph, unit), documents())  # type: ignore[arg-type]
    assert await scalar(database, "SELECT count(*) FROM graph_blocks WHERE part = 'triples'") == 2
    back = await loaded(database, made.graph.id, tmp_path)
    assert (back.entities, back.relations) == (graph.entities, graph.relations)
    np.testing.assert_array_equal(back.triples, graph.triples)
    if graph.times is None:
        assert back.times is None
    else:
        np.testing.assert_array_equal(back.times, graph.times)


async def test_a_graph_says_its_counts_its_times_and_its_largest_relations(database: Database) -> None:
    made = await stored_graphs.create(database, "g", stored_graphs.GraphFacts(TEMPORAL, "step"), documents())
    found = await stored_graphs.get(database, "g")
    assert made.new
    assert made.graph == found
    assert (found.facts, found.entities, found.relations, found.corpus) == (3, 3, 2, "g")
    assert (found.time_unit, found.first_time, found.last_time) == ("step", "-1", "735000")
    assert [(each.relation, each.facts) for each in found.largest] == [("knows", 2), ("Make_statement", 1)]
    assert (await stored_graphs.list_graphs(database, 10)).data == [found]


async def test_a_deleted_graph_leaves_its_corpus_and_no_block(database: Database) -> None:
    await stored_graphs.create(database, "g", stored_graphs.GraphFacts(STATIC, None), documents())
    await stored_graphs.delete(database, "g")
    assert await scalar(database, "SELECT count(*) FROM graph_blocks") == 0
    assert await scalar(database, "SELECT count(*) FROM corpora") == 1
    with pytest.raises(NotFound):
        await stored_graphs.get(database, "g")
