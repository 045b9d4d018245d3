"""Rows of knowledge graphs; their facts are stored in blocks."""

import asyncio
import hashlib
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import RowMapping, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict
from shared import canonical
from shared.replies import CorpusRecord
from shared.rules.facts import format_time
from shared.rules.graph import Graph
from shared.samples import Phrase, TimeUnit
from shared.storage import corpora
from shared.storage.database import Database, Page, check_name, copy, cursor_scope, load_named, load_page
from shared.storage.quota import start_tally

# Store a graph's arrays and names as compressed blocks of bounded size, so that both sides need little memory.

BLOCK_BYTES = 1 << 20
"""Largest uncompressed block, except for a block with a single longer name."""
LEVEL = 1
"""Compression level of zlib, the fastest."""
AT_ONCE = 8
"""Blocks fetched per round trip."""
Part = Literal["triples", "times", "entities", "relations"]
DTYPES: dict[Part, str] = {"triples": "<i4", "times": "<i8"}
"""Element types of the array parts; triples are rows of three. The other parts are names, one per UTF-8 line."""
BLOCK_COLUMNS = ("graph_id", "part", "ordinal", "content")
SELECT = text("SELECT part, content FROM graph_blocks WHERE graph_id = :graph ORDER BY part, ordinal")


class Block(NamedTuple):
    """A piece of a part. The blocks of a part come in order."""

    part: Part
    content: bytes


async def store_graph(connection: AsyncConnection, graph_id: int, graph: Graph) -> None:
    """Store the whole graph as rows of `graph_blocks`."""
    parts: dict[Part, Iterator[bytes]] = {"triples": _split_array("triples", graph.triples)}
    if graph.times is not None:
        parts["times"] = _split_array("times", graph.times)
    parts |= {"entities": _split_names(graph.entities), "relations": _split_names(graph.relations)}

    async def make_rows() -> AsyncIterator[tuple[int, Part, int, bytes]]:
        for part, pieces in parts.items():
            for ordinal, piece in enumerate(pieces):
                yield graph_id, part, ordinal, await asyncio.to_thread(zlib.compress, piece, LEVEL)

    await copy(connection, "graph_blocks", BLOCK_COLUMNS, make_rows())


async def stream_blocks(connection: AsyncConnection, graph_id: int) -> AsyncIterator[Block]:
    """Yield all blocks, decompressed, with only a few in memory."""
    values, options = {"graph": graph_id}, {"yield_per": AT_ONCE}
    async with connection.stream(SELECT, values, execution_options=options) as rows:
        async for row in rows:
            yield Block(row.part, await asyncio.to_thread(zlib.decompress, row.content))


async def load_graph(connection: AsyncConnection, graph_id: int) -> Graph:
    """Load the whole graph: 12 bytes per fact, 20 with times, plus the names."""
    arrays: defaultdict[Part, bytearray] = defaultdict(bytearray)
    found: defaultdict[Part, list[str]] = defaultdict(list)
    async for part, content in stream_blocks(connection, graph_id):
        if part in DTYPES:
            arrays[part] += content
        else:
            found[part] += decode_names(content)
    triples = np.frombuffer(arrays["triples"], DTYPES["triples"]).reshape(-1, 3)
    times = np.frombuffer(arrays["times"], DTYPES["times"]) if "times" in arrays else None
    return Graph(triples, times, found["entities"], found["relations"])


def decode_names(content: bytes) -> list[str]:
    """Decode a block of entity or relation names."""
    return content.decode().split("\n")[:-1]


def _split_array(part: Part, values: NDArray[np.int32] | NDArray[np.int64]) -> Iterator[bytes]:
    rows = BLOCK_BYTES // values[:1].nbytes
    for first in range(0, len(values), rows):
        yield values[first : first + rows].astype(DTYPES[part], copy=False).tobytes()


def _split_names(found: Sequence[str]) -> Iterator[bytes]:
    piece = bytearray()
    for name in found:
        line = f"{name}\n".encode()
        if piece and len(piece) + len(line) > BLOCK_BYTES:
            yield bytes(piece)
            piece.clear()
        piece += line
    yield bytes(piece)


# Store knowledge graphs in compressed blocks; each graph is also a corpus whose documents are its facts.

LARGEST = 5
"""Number of largest relations that a graph is shown with."""
COLUMNS = """
    g.id, g.name, encode(g.hash, 'hex') AS hash, g.facts, g.entities, g.relations, g.time_unit, g.first_time,
    g.last_time, g.largest, c.name AS corpus, g.project, g.created_at"""
FROM = f"SELECT {COLUMNS} FROM graphs g JOIN corpora c ON c.id = g.corpus_id"  # noqa: S608 - constants
ONE = text(f"{FROM} WHERE g.name = :name")
LIST = text(f"{FROM} WHERE g.id < :before ORDER BY g.id DESC LIMIT :n")
CHUNK = 10_000
"""Facts formatted at a time."""
SCOPE = cursor_scope("graphs")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag graphs'))")
INSERT = text("""
    INSERT INTO graphs (name, hash, facts, entities, relations, time_unit, first_time, last_time, largest, corpus_id,
        phrases, phrases_hash, bytes, made_by)
    VALUES (:name, :hash, :facts, :entities, :relations, :time_unit, :first_time, :last_time,
        CAST(:largest AS jsonb), :corpus, CAST(:phrases AS json), :phrases_hash, :bytes, :made_by) RETURNING id""")
PHRASES = text("SELECT phrases FROM graphs WHERE id = :id")
DELETE = text("DELETE FROM graphs WHERE id = :id")
BANKS = text("SELECT name FROM rule_banks WHERE graph_id = :id ORDER BY name LIMIT 5")


class RelationSize(msgspec.Struct, frozen=True, kw_only=True):
    """Number of facts of a relation."""

    relation: str
    """Name of the relation."""
    facts: int
    """Number of facts."""


class StoredGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph."""

    id: int
    """Number of the graph in the database."""
    name: str
    """Name of the graph."""
    hash: str
    """SHA-256 of the facts in order, one tab-separated line each: subject, relation, object and time."""
    facts: int
    """Number of distinct facts."""
    entities: int
    """Number of entities."""
    relations: int
    """Number of relations."""
    time_unit: TimeUnit | None
    """Unit of times: days or the file's own steps; null if facts have no times."""
    first_time: str | None
    """Time of the earliest fact; null if facts have no times."""
    last_time: str | None
    """Time of the latest fact; null if facts have no times."""
    largest: list[RelationSize]
    """The five relations with the most facts."""
    corpus: str
    """Corpus whose documents are the facts."""
    created_at: datetime
    """Time at which the graph was stored."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


class CreatedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    graph: StoredGraph
    new: bool
    """False if the same graph existed already."""


class GraphFacts(NamedTuple):
    """The facts of an upload, with entities and relations as numbers."""

    graph: Graph
    time_unit: TimeUnit | None
    phrases: Mapping[str, Phrase] = {}
    """Phrases of relations, if the upload has any."""


async def create(
    database: Database, name: str, upload: GraphFacts, documents: AsyncIterator[list[CorpusRecord]]
) -> CreatedGraph:
    """Store a graph and its corpus of the same name in one transaction; repeating this returns the existing graph.

    Raises:
        Conflict: a graph with this name has other facts, or a corpus with this name has other documents.
        Invalid: the name cannot be used.
        TooLarge: the key has no room for them.
    """
    digest = await asyncio.to_thread(content_hash, upload)
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": check_name(name)})).mappings().first()
        if row is not None and row["hash"] != digest.hex():
            raise Conflict(f"graph {name!r} exists with other facts", hint="choose another name")
        stored = await corpora.store(connection, name, documents)
        if row is None:
            graph, unit, phrases = upload
            tally = await start_tally(connection)
            tally.add(graph.triples.nbytes + (0 if graph.times is None else graph.times.nbytes))
            tally.add(sum(len(f"{each}\n".encode()) for each in (*graph.entities, *graph.relations)))
            words = canonical.encode(phrases) if phrases else None
            counts = np.bincount(graph.triples[:, 1], minlength=len(graph.relations))
            order = np.argsort(-counts, kind="stable")[:LARGEST].tolist()
            largest_relations = msgspec.json.encode(
                [{"relation": graph.relations[at], "facts": int(counts[at])} for at in order]
            ).decode()
            values = {
                "name": name, "hash": digest, "facts": len(graph.triples), "entities": len(graph.entities),
                "relations": len(graph.relations), "time_unit": unit, "corpus": stored.corpus.id,
                "largest": largest_relations,
                "first_time": None if graph.times is None else int(graph.times.min()),
                "last_time": None if graph.times is None else int(graph.times.max()),
                "phrases": words and words.decode(), "phrases_hash": words and hashlib.sha256(words).digest(),
                "bytes": tally.bytes, "made_by": tally.made_by,
            }  # fmt: skip
            number = int((await connection.execute(INSERT, values)).scalar_one())
            await store_graph(connection, number, graph)
        created = _make_graph(await load_named(connection, ONE, "graph", name))
        return CreatedGraph(graph=created, new=row is None)


def content_hash(upload: GraphFacts) -> bytes:
    """Return the SHA-256 of the facts as a file of tab-separated lines, as `sha256sum` computes it."""
    found = hashlib.sha256()
    for line in format_tsv(upload):
        found.update(line.encode())
    return found.digest()


def format_tsv(upload: GraphFacts) -> Iterator[str]:
    """Yield each fact as a tab-separated line of names and time, in order."""
    graph, unit, _ = upload
    entities, relations = graph.entities, graph.relations
    for first in range(0, len(graph.triples), CHUNK):
        triples = graph.triples[first : first + CHUNK].tolist()
        named = (f"{entities[s]}\t{relations[r]}\t{entities[o]}" for s, r, o in triples)
        if graph.times is None or unit is None:
            yield from (f"{line}\n" for line in named)
            continue
        steps = graph.times[first : first + CHUNK].tolist()
        yield from (f"{line}\t{format_time(step, unit)}\n" for line, step in zip(named, steps, strict=True))


async def get(database: Database, name: str) -> StoredGraph:
    """Get the graph called `name`.

    Raises:
        NotFound: it does not exist.
    """
    async with database.transaction() as connection:
        return _make_graph(await load_named(connection, ONE, "graph", name))


async def load(database: Database, name: str) -> tuple[StoredGraph, GraphFacts]:
    """Load the graph called `name` with all its facts.

    Raises:
        NotFound: it does not exist.
    """
    async with database.transaction() as connection:
        stored = _make_graph(await load_named(connection, ONE, "graph", name))
        phrases = (await connection.execute(PHRASES, {"id": stored.id})).scalar_one()
        words = {} if phrases is None else msgspec.convert(phrases, dict[str, Phrase])
        return stored, GraphFacts(await load_graph(connection, stored.id), stored.time_unit, words)


async def list_graphs(database: Database, limit: int, cursor: str | None = None) -> Page[StoredGraph]:
    """List graphs, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, _make_graph)


async def delete(database: Database, name: str) -> StoredGraph:
    """Delete a graph and return it; its corpus stays.

    Raises:
        NotFound: it does not exist.
        Conflict: a rule bank was mined from it.
    """
    try:
        async with database.transaction() as connection:
            graph = _make_graph(await load_named(connection, ONE, "graph", name))
            await connection.execute(DELETE, {"id": graph.id})
    except IntegrityError as error:
        banks = ", ".join(await database.column(BANKS, {"id": graph.id}))
        hint = "delete these first: mathrag rules delete NAME"
        raise Conflict(f"rule banks were mined from graph {name!r}: {banks}", hint=hint) from error
    return graph


def _make_graph(row: RowMapping) -> StoredGraph:
    unit = row["time_unit"]
    first, last = (unit and format_time(row[key], unit) for key in ("first_time", "last_time"))
    largest = msgspec.convert(row["largest"], list[RelationSize])
    return StoredGraph(**{**row, "first_time": first, "last_time": last, "largest": largest})


async def count_relations(connection: AsyncConnection, graph: int) -> list[tuple[str, int]]:
    """Return (relation, facts) of a graph (row id), most facts first, ties in the graph's order."""
    names: list[str] = []
    counts: NDArray[np.int64] = np.zeros(0, np.int64)
    async for block in stream_blocks(connection, graph):
        if block.part == "relations":
            names += decode_names(block.content)
        elif block.part == "triples":
            relations = np.frombuffer(block.content, DTYPES["triples"])[1::3]
            found = np.bincount(relations, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
    order = np.argsort(-counts, kind="stable").tolist()
    return [(names[at], int(counts[at])) for at in order]
