"""The processes that mine: rules however many, and each bound in words. What all pools share is tested with grading."""

from pathlib import Path

import numpy as np
import pytest

from services.judge import graphs
from services.judge.pools import MiningPool
from shared.calls import Amie
from shared.replies import Failure, FailureKind, Mined

pytestmark = pytest.mark.anyio
PROCESS = "tests.doubles.mining_process"
MEMORY_MIB = 2048


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "triples").write_bytes(np.array([[0, 0, 1], [1, 1, 2]], "<i4").tobytes())
    (folder / "times").write_bytes(np.array([3, -1], "<i8").tobytes())
    (folder / "entities").write_bytes('Ångström\n"the Duke"\n東京\n'.encode())
    (folder / "relations").write_bytes(b"likes 3\nowns 2\n")
    return folder


def test_a_graph_is_read_from_its_files(folder: Path) -> None:
    graph = graphs.map_graph(folder)
    assert graph.triples.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert graph.times is not None
    assert graph.times.tolist() == [3, -1]
    assert list(graph.entities) == ["Ångström", '"the Duke"', "東京"]
    assert (graph.entities[-1], graph.entities[0:2]) == ("東京", ["Ångström", '"the Duke"'])
    with pytest.raises(IndexError):
        graph.entities[3]


async def test_relations_are_mined_in_a_process_that_is_kept(folder: Path) -> None:
    """Rules that are longer than any line of a pipe come back, and nothing is left beside the graph.

    What the miner refuses is no fault of the process: the graph and the limits decide it, so it is kept as a reply.
    """
    async with MiningPool(1, 60.0, MEMORY_MIB, PROCESS) as pool:
        mined = await pool.mine(folder, "likes 3", Amie())
        assert isinstance(mined, Mined)
        assert [rule.pca_confidence for rule in mined.rules] == [0, 1 / 3, 2 / 3]
        before = pool.pids
        many = await pool.mine(folder, "likes 2000", Amie())
        assert isinstance(many, Mined)
        assert (len(many.rules), pool.pids) == (2000, before)
        reply = await pool.mine(folder, "refused", Amie())
        assert reply == Failure(kind=FailureKind.REFUSED, detail="the graph has no such relation")
        assert pool.pids == before
    assert list(folder.parent.iterdir()) == [folder]


async def test_a_relation_that_takes_too_much_fails_alone(folder: Path) -> None:
    async with MiningPool(1, 0.5, MEMORY_MIB, PROCESS) as pool:
        memory = await pool.mine(folder, "takes 4 GiB", Amie())
        assert isinstance(memory, Failure)
        assert memory.kind is FailureKind.OUT_OF_MEMORY
        assert "takes more than 2048 MiB, its process's part of `workers.mining_mib`" in memory.detail
        time = await pool.mine(folder, "computes for ever", Amie())
        assert isinstance(time, Failure)
        assert time.kind is FailureKind.MINER_TIMEOUT
        assert "takes more than 0.5 s of the processor; raise `workers.mine_deadline_s`" in time.detail
        assert isinstance(await pool.mine(folder, "owns 2", Amie()), Mined)
