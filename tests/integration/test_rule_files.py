"""Rule banks from files and as files: all or nothing, the same again is harmless, a copy has the same hash."""

import gzip
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import numpy as np
import pytest

from shared.calls import Amie, TemporalSimple
from shared.errors import NotFound
from shared.ingest import amie
from shared.replies import Atom, CorpusRecord, Document, Rule
from shared.rules.graph import Graph
from shared.settings import Limits
from shared.storage import graphs, rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin, RuleBank
from tests.integration.api import Api, serving
from tests.integration.scene import SETTINGS, scalar

pytestmark = pytest.mark.anyio

FIGURES = "\t0.25\t0.5\t0.625\t5\t10\t8\t?a\n"
AMIE = f"?b  knows  ?a   => ?a  knows  ?b{FIGURES}?a  met  ?h  ?h  met  ?b   => ?a  knows  ?b{FIGURES}"
TEMPORAL = Rule(head=Atom("knows", 0, 1), body=(Atom("met", 0, 1),), support=5, body_size=10, confidence=0.5,
                kind="xy", curve=(0.1, -2e-9))  # fmt: skip
GRAPH = Graph(triples=np.array([[0, 0, 1]], np.int32), times=None, entities=["a", "b"], relations=["knows"])


@pytest.fixture
def api(empty_api: Api) -> Api:
    return empty_api


async def imported(api: Api, content: str | bytes, name: str = "mine", **query: Any) -> httpx2.Response:
    return await api.http.post("/v1/rules/import", params={"name": name, **query}, content=content)


async def exported(api: Api, name: str = "mine", **query: Any) -> str:
    reply = await api.http.get(f"/v1/rules/{name}/export", params=query)
    assert reply.status_code == 200, reply.text
    return reply.text


async def test_amies_file_becomes_a_bank_and_again_the_same_packed(api: Api) -> None:
    made = await imported(api, AMIE)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/rules/mine")
    bank = made.json()
    assert (bank["state"], bank["miner"], bank["rules"], bank["graph"]) == ("ready", "amie", 2, None)
    page = await api.get("/v1/rules/mine/rules", head="knows")
    assert [rule["head"][0] for rule in page["data"]] == ["knows", "knows"]
    again = await imported(api, gzip.compress(AMIE.encode()))
    assert (again.status_code, again.json()) == (200, bank)


async def test_a_file_of_another_format_than_the_named_one_is_refused(api: Api) -> None:
    assert (await imported(api, AMIE, format="amie")).status_code == 201
    refused = await imported(api, AMIE, "other", format="json")
    assert (refused.status_code, refused.json()["detail"]) == (422, "`format`: the file is amie, not json")


async def test_a_name_that_has_other_rules_is_refused(api: Api) -> None:
    await imported(api, AMIE)
    refused = await imported(api, AMIE.splitlines(keepends=True)[0])
    assert (refused.status_code, refused.json()["hint"]) == (409, "choose another name")


async def test_a_mined_bank_and_the_import_of_its_export_have_the_same_hash(api: Api, database: Database) -> None:
    async def batches() -> AsyncIterator[list[Rule]]:
        yield [amie.rule(line) for line in AMIE.splitlines()]

    origin = ImportOrigin("amie", "ab" * 32, Amie(min_support=3))
    mined, _ = await rules.create_imported(database, "mined", origin, batches())
    copy = (await imported(api, await exported(api, "mined"), "copy")).json()
    assert (copy["hash"], copy["limits"]["min_support"], copy["graph_hash"]) == (mined.hash, 3, "ab" * 32)
    assert copy["hash"] != (await imported(api, AMIE)).json()["hash"]


async def test_a_bank_of_a_miner_of_an_earlier_release_is_listed_shown_and_copied(api: Api, database: Database) -> None:
    bank = await store_temporal(database)
    (listed,) = (await api.get("/v1/rules"))["data"]
    assert (listed["miner"], listed["limits"]["window"]) == ("temporal-simple", 7)
    (rule,) = (await api.get("/v1/rules/old/rules"))["data"]
    assert (rule["kind"], rule["curve"]) == ("xy", [0.1, -2e-9])
    assert (await api.http.get("/rules/old")).status_code == 200
    copy = (await imported(api, await exported(api, "old"), "copy")).json()
    assert (copy["hash"], copy["limits"]["window"]) == (bank.hash, 7)


async def test_a_bank_is_read_in_batches(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    name = (await imported(api, AMIE)).json()["name"]
    monkeypatch.setattr(rules, "BATCH", 1)
    async with database.transaction() as connection:
        bank = await rules.get_bank(connection, name)
    assert [len(batch) async for batch in rules.read_rules(database, bank)] == [1, 1]


async def test_an_export_of_a_deleted_bank_breaks_off_instead_of_ending_early(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await imported(api, AMIE)).json()["name"]
    monkeypatch.setattr(rules, "BATCH", 1)
    async with database.transaction() as connection:
        bank = await rules.get_bank(connection, name)
    batches = rules.read_rules(database, bank)
    assert len(await anext(batches)) == 1
    await rules.delete(database, name)
    with pytest.raises(NotFound, match="was deleted while it was read"):
        await anext(batches)


async def test_a_bank_is_exported_as_amie_prints_it(api: Api) -> None:
    bank = (await imported(api, AMIE)).json()
    written = await exported(api, format="amie")
    assert written.splitlines()[0] == (
        "?b  knows  ?a   => ?a  knows  ?b\t0.250000000\t0.500000000\t0.625000000\t5\t10\t8\t?a"
    )
    assert (await imported(api, written, "copy")).json()["hash"] == bank["hash"]


async def store_temporal(database: Database) -> RuleBank:
    """Store a bank as a release with the miner `temporal-simple` did."""

    async def batches() -> AsyncIterator[list[Rule]]:
        yield [TEMPORAL]

    origin = ImportOrigin("temporal-simple", "cd" * 32, TemporalSimple(window=7))
    bank, _ = await rules.create_imported(database, "old", origin, batches())
    return bank


async def test_what_amies_columns_cannot_hold_is_refused_before_the_answer_begins(api: Api, database: Database) -> None:
    await store_temporal(database)
    refused = await api.http.get("/v1/rules/old/export", params={"format": "amie"})
    assert (refused.status_code, refused.json()["hint"]) == (422, "export as json")


async def test_an_edited_copy_is_refused(api: Api, database: Database) -> None:
    await imported(api, AMIE)
    edited = (await exported(api)).replace('"support":5', '"support":6')
    refused = await imported(api, edited, "copy")
    assert refused.status_code == 422
    assert "the rules have the hash" in refused.json()["detail"]
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 1


async def test_rules_with_relations_that_the_graph_does_not_have_are_refused(api: Api, database: Database) -> None:
    async def documents() -> AsyncIterator[list[CorpusRecord]]:
        yield [CorpusRecord(external_id="0", document=Document(text="A fact."), meta={})]

    await graphs.create(database, "g", graphs.GraphFacts(GRAPH, None), documents())
    many = "".join(f"?a  r{number}  ?b   => ?a  knows  ?b{FIGURES}" for number in range(7))
    refused = (await imported(api, many, graph="g")).json()
    assert refused["detail"] == (
        "the rules name 7 relations that graph 'g' does not have: 'r0', 'r1', 'r2', 'r3', 'r4' and 2 more"
    )
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 0
    assert (await imported(api, f"?b  knows  ?a   => ?a  knows  ?b{FIGURES}", graph="g")).status_code == 201
    assert (await imported(api, many, "other", graph="no-such")).status_code == 404


async def test_what_cannot_be_imported_is_refused_and_nothing_is_stored(api: Api, database: Database) -> None:
    for content, query, said in (
        (AMIE + AMIE, {}, "upload, line 3: the rule occurs twice; remove one"),
        (AMIE.replace("10", "x"), {}, "upload, line 1: `Body size` is 'x', not a whole number"),
        ("10\t5\t0.5\tknows(X,Y) <= met(X,Y)\n", {}, "upload: has no rules in AMIE's columns"),
        ('{"3": []}', {}, "upload, line 1: is not the header of a bank that this release can read"),
        (gzip.compress(AMIE.encode())[:-12], {}, "upload, line 1: the gzip file is truncated or damaged"),
        (AMIE, {"name": "a b"}, "name"),
    ):
        refused = await imported(api, content, **{"name": "mine", **query})
        assert (refused.status_code, said in refused.json()["detail"]) == (422, True), said
    assert await scalar(database, "SELECT count(*) FROM rule_banks") == 0


async def test_more_than_the_operator_allows_is_refused(database: Database, redis_url: str) -> None:
    for limits in (Limits(upload_bytes=50), Limits(upload_rows=1)):
        async with serving(database, redis_url, SETTINGS.model_copy(update={"limits": limits})) as api:
            assert (await imported(api, AMIE)).status_code == 413


async def test_a_bank_that_is_not_there_is_not_exported(api: Api) -> None:
    assert (await api.http.get("/v1/rules/mine/export")).status_code == 404
