"""Elasticsearch: what is said to it, what is made of its errors, what the doctor is told; a double plays the server."""

import base64
import json
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mathrag.check import Check
from mathrag.errors import Invalid, MathragError, NotFound, Refused, TooLarge, Unavailable
from services.retriever import builds, checks, elasticsearch
from services.retriever import index as index_module
from services.retriever.backends import make_backends
from services.retriever.elasticsearch import (
    MARGIN,
    ElasticsearchServer,
    ElasticsearchTerms,
    ElasticsearchVectors,
    make_query,
    to_cosine,
)
from services.retriever.index import PAIRS, Batch, Bm25, Faiss, SearchIndex
from shared import canonical
from shared.settings import Dense, Elasticsearch, Retrieval, Settings, Sparse, VectorGraph
from tests.doubles.search_server import SearchServer, make_failure, search_server, shards_failed
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, HashedWords

pytestmark = pytest.mark.anyio

# What the Elasticsearch back ends say to a server, and what they make of its errors; a double plays the server.

SIGNATURE = "ab" * 32
TERMS, VECTORS = f"mathrag-sparse-{SIGNATURE}", f"mathrag-dense-{SIGNATURE}"
MANY = [(f"{at:064x}", f"text {at}") for at in range(2200)]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchServer]:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    monkeypatch.setattr(elasticsearch, "BACK_OFF_S", 0.001)
    with search_server() as double:
        yield double
        double.answering.set()


def client(double: SearchServer, **settings: object) -> ElasticsearchServer:
    return ElasticsearchServer(Elasticsearch.model_validate({"url": double.url, **settings}))


def terms(double: SearchServer, **settings: object) -> ElasticsearchTerms:
    return ElasticsearchTerms(client(double, **settings), PAIRS, k1=0.9, b=0.4)


def vectors(double: SearchServer, **settings: object) -> ElasticsearchVectors:
    return ElasticsearchVectors(client(double, **settings), HashedWords(), Dense(neighbours=24, build=150, search=99))


def test_terms_are_ours_and_so_are_the_parameters(double: SearchServer) -> None:
    terms(double).build([[("0" * 64, r"Find $x^{10}$ of $\frac{1}{2}$, 面积")]], SIGNATURE)
    held = double.indexes[TERMS]
    assert held.shown["0" * 64] == {"hash": "0" * 64, "terms": r"find x^10 x 10 of \frac 1 2 面 积 面积"}
    assert held.settings["similarity"] == {"ours": {"type": "BM25", "k1": 0.9, "b": 0.4}}
    assert (held.settings["number_of_shards"], held.settings["refresh_interval"]) == (1, "-1")
    assert held.properties["terms"]["similarity"] == "ours"


def test_vectors_are_a_graph_of_floats(double: SearchServer) -> None:
    vectors(double).build([DOCUMENTS], SIGNATURE)
    held = double.indexes[VECTORS]
    assert held.properties["vector"] == {
        "type": "dense_vector", "dims": 64, "index": True, "similarity": "max_inner_product",
        "index_options": {"type": "hnsw", "m": 24, "ef_construction": 150},
    }  # fmt: skip
    assert held.settings["index.dense_vector.hnsw_enable_early_termination"] is False


@pytest.mark.parametrize("minor", [0, 1, 2, 3, 4])
def test_every_version_9_is_sent_only_what_it_knows(double: SearchServer, minor: int) -> None:
    double.minor = minor
    backend = vectors(double)
    index = backend.build([DOCUMENTS], SIGNATURE)
    assert len(index.search(["circle"], 3)[0]) == 3
    assert ("early_termination" in str(double.indexes[VECTORS].settings)) is (minor >= 2)
    assert isinstance(double.indexes[VECTORS].shown[DOCUMENTS[0][0]]["vector"], str) is (minor >= 3)
    assert isinstance(double.bodies[-1]["knn"]["query_vector"], str) is (minor >= 4)
    assert backend.recipe() == vectors(double).recipe()


def test_as_many_candidates_are_looked_at_as_the_settings_say(double: SearchServer) -> None:
    index = vectors(double).build([DOCUMENTS], SIGNATURE)
    for k in (4, 400):
        index.search(["circle"], k)
    asked = [body["knn"] for body in double.bodies if "knn" in body]
    assert [(each["k"], each["num_candidates"]) for each in asked] == [(4 + MARGIN, 99), (400 + MARGIN, 400 + MARGIN)]


def test_both_give_what_the_embedded_ones_give(double: SearchServer) -> None:
    """Documents and order; the scores to single precision. The double counts by the same formulas, so this shows that
    nothing is lost on the way, not that a real server counts so."""
    pairs: list[tuple[SearchIndex, SearchIndex]] = [
        (ElasticsearchTerms(client(double), PAIRS, k1=1.2, b=0.75).build([DOCUMENTS]), Bm25().build([DOCUMENTS])),
        (vectors(double).build([DOCUMENTS]), Faiss(HashedWords()).build([DOCUMENTS])),
    ]
    for served, embedded in pairs:
        for left, right in zip(served.search(QUESTIONS, 6), embedded.search(QUESTIONS, 6), strict=True):
            assert [match.document for match in left] == [match.document for match in right]
            assert [match.score for match in left] == pytest.approx([match.score for match in right], abs=1e-6)


def test_scores_are_the_formulas(double: SearchServer) -> None:
    [[match]] = terms(double).build([[("0" * 64, "circle")]], SIGNATURE).search(["circle"], 1)
    assert match.score == pytest.approx(math.log(4 / 3) / 1.9, abs=1e-6)


def test_a_batch_is_one_request(double: SearchServer) -> None:
    for index in (terms(double).build([DOCUMENTS], SIGNATURE), vectors(double).build([DOCUMENTS], SIGNATURE)):
        before = double.calls("_msearch")
        assert len(index.search(QUESTIONS * 40, 3)) == len(QUESTIONS) * 40
        assert double.calls("_msearch") == before + 1
        index.search(["circle"] * 25, 9000)
        assert double.calls("_msearch") == before + 4


def test_questions_with_more_equals_than_were_fetched_are_asked_again_alone(double: SearchServer) -> None:
    equals = [(f"{at:064x}", "circle") for at in range(300, 0, -1)]
    for backend in (terms(double), vectors(double)):
        index = backend.build([[*equals, *DOCUMENTS]], SIGNATURE)
        found = index.search(["derivative", "circle"], 5)
        assert [int(match.document, 16) for match in found[1]] == [1, 2, 3, 4, 5]
        assert len({match.score for match in found[1]}) == 1
        assert "derivative" not in str(double.bodies[-1])


def test_more_than_the_server_finds_at_once_is_refused(double: SearchServer) -> None:
    for index in (terms(double).build([DOCUMENTS], SIGNATURE), vectors(double).build([DOCUMENTS], SIGNATURE)):
        assert len(index.search(["circle"], 10_000)[0]) >= 2
        with pytest.raises(
            Invalid, match="finds 10000 documents at most in one search, but the request asks for 20000"
        ):
            index.search(["circle"], 20_000)


def test_a_question_of_too_many_terms_is_too_large(double: SearchServer) -> None:
    index = terms(double).build([DOCUMENTS], SIGNATURE)
    with pytest.raises(TooLarge, match="too many nested clauses; maxClauseCount is set to 8192"):
        index.search(["circle", " ".join(f"t{at}" for at in range(9000))], 3)


def test_a_question_without_terms_asks_nothing(double: SearchServer) -> None:
    index = terms(double).build([DOCUMENTS], SIGNATURE)
    assert index.search(["+ = $"], 3) == [[]]
    assert double.calls("_msearch") == 0


def test_documents_stream_in_chunks(double: SearchServer) -> None:
    seen: list[int] = []

    def batches() -> Iterator[Batch]:
        for at in range(0, len(MANY), 100):
            seen.append(double.calls("_bulk"))
            yield MANY[at : at + 100]

    index = terms(double).build(batches(), SIGNATURE)
    assert (double.calls("_bulk"), double.calls("_refresh")) == (5, 1)
    assert seen[0] == 0
    assert seen[-1] >= 2
    assert len(index.documents) == client(double).count(TERMS) == len(MANY)


@pytest.mark.parametrize("status", elasticsearch.OVERLOADED)
@pytest.mark.parametrize("call", ["_bulk", "_msearch", "_refresh"])
def test_what_may_pass_is_tried_again(double: SearchServer, call: str, status: int) -> None:
    double.fail(call, status, status, status)
    assert len(terms(double).build([DOCUMENTS], SIGNATURE).search(["circle"], 3)[0]) == 2
    assert double.calls(call) == 4


def test_a_document_that_is_refused_for_now_is_sent_again_alone(double: SearchServer) -> None:
    double.refused[DOCUMENTS[3][0]] = [429, 429]
    index = terms(double).build([DOCUMENTS], SIGNATURE)
    assert double.calls("_bulk") == 3
    assert len(index.documents) == client(double).count(TERMS) == len(DOCUMENTS)


def test_a_document_that_is_refused_is_named_and_nothing_stays(double: SearchServer) -> None:
    double.refused[DOCUMENTS[3][0]] = [400]
    with pytest.raises(Invalid, match=rf"refuses document {DOCUMENTS[3][0]} \(400\): as told"):
        terms(double).build([DOCUMENTS], SIGNATURE)
    assert double.indexes == {}


def test_documents_that_the_server_loses_are_noticed(double: SearchServer) -> None:
    double.lost = 2
    with pytest.raises(Unavailable, match="has 4 documents, but 6 were sent to it"):
        terms(double).build([DOCUMENTS], SIGNATURE)
    assert double.indexes == {}


def test_an_index_whose_creation_got_no_reply_is_not_created_again_and_does_not_stay(double: SearchServer) -> None:
    double.unanswered = ["PUT"]
    with pytest.raises(Unavailable, match="closed the connection"):
        terms(double).build([DOCUMENTS], SIGNATURE)
    assert (double.calls(f"PUT /{TERMS}"), double.indexes) == (1, {})
    assert [call.split("?")[0] for call in double.seen[-2:]] == ["GET /_cluster/health", f"DELETE /{TERMS}"]
    assert len(terms(double).build([DOCUMENTS], SIGNATURE).documents) == len(DOCUMENTS)


def test_an_index_is_created_without_waiting_for_its_shard(double: SearchServer) -> None:
    terms(double, timeout_s=10).build([DOCUMENTS], SIGNATURE)
    [query] = [query for call, query in double.queries if call == f"PUT /{TERMS}"]
    assert query == {"wait_for_active_shards": "0", "master_timeout": "5000ms", "timeout": "5000ms"}


def test_an_index_that_the_server_does_not_create_is_refused(double: SearchServer) -> None:
    double.fail(TERMS, 200, 400)  # of deleting what was there, and of creating
    with pytest.raises(Invalid, match=r"refuses a request \(400\): as the test told it"):
        terms(double).build([DOCUMENTS], SIGNATURE)


def test_only_indexes_that_this_installation_built_are_its_own(double: SearchServer) -> None:
    for prefix in ("mathrag", "mathrag-staging", "mathrag-dense", "mathrag-sparse-sparse"):
        terms(double, prefix=prefix).build([DOCUMENTS], SIGNATURE)
    double.indexes["mathrag-sparse-notes"] = double.indexes["mathrag-dense-" + "g" * 64] = double.indexes[TERMS]
    assert client(double).indexes() == [TERMS]
    assert client(double, prefix="mathrag-dense").indexes() == [f"mathrag-dense-sparse-{SIGNATURE}"]


def test_a_search_is_no_line_of_the_log(double: SearchServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        terms(double).build([DOCUMENTS], SIGNATURE).search(["circle"], 3)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("elastic")] == []


@pytest.mark.parametrize("left", [0, 1])
def test_what_a_build_before_left_behind_is_replaced(double: SearchServer, left: int) -> None:
    terms(double).build([MANY[:10]], SIGNATURE)
    double.indexes[TERMS].shown = dict(list(double.indexes[TERMS].shown.items())[:left])
    terms(double).build([DOCUMENTS], SIGNATURE)
    assert set(double.indexes[TERMS].shown) == {document for document, _ in DOCUMENTS}


def refusal(double: SearchServer, **settings: object) -> MathragError:
    with pytest.raises(MathragError) as caught:
        client(double, **{"retries": 0, **settings}).search(TERMS, 3, [make_query(["circle"])])
    return caught.value


def test_a_server_that_is_not_there_is_said_so(double: SearchServer) -> None:
    said = refusal(double, url="http://elastic:secret@127.0.0.1:9")
    assert said.message.startswith("Elasticsearch at 127.0.0.1:9 cannot be reached: ")
    assert "ELASTICSEARCH_URL" in str(said.hint)
    assert "secret" not in f"{said.message} {said.hint}"


def test_a_server_that_does_not_answer_is_said_so(double: SearchServer) -> None:
    double.answering.clear()
    said = refusal(double, timeout_s=0.2)
    assert "did not answer in time" in said.message
    assert "`retrieval.elasticsearch.timeout_s`" in str(said.hint)


def test_keys_and_passwords_are_sent(double: SearchServer) -> None:
    basic = base64.b64encode(b"elastic:secret").decode()
    double.credentials = {"ApiKey c2VjcmV0", f"Basic {basic}"}
    assert client(double, api_key="c2VjcmV0").indexes() == []
    assert client(double, url=double.url.replace("//", "//elastic:secret@")).indexes() == []
    said = refusal(double, api_key="d3Jvbmc=")
    assert isinstance(said, Refused)
    assert "refuses access (401): missing or wrong credentials" in said.message
    assert "`retrieval.elasticsearch.api_key`" in str(said.hint)


UNAUTHORIZED = (
    "action [{}] is unauthorized for API key id [k] of user [elastic]{}, this action is granted by the {} privileges"
    " [{}]"
)
"""As a server of version 9 says it."""


@pytest.mark.parametrize(
    ("call", "action", "of", "granting", "missing"),
    [
        ("", "cluster:monitor/main", "cluster", "monitor,manage,all", "cluster privilege `monitor`"),
        ("_count", "indices:data/read/search", "index", "read_failure_store,read,all", "index privilege `read`"),
        ("_refresh", "indices:admin/refresh", "index", "maintenance,manage,all", "index privilege `manage`"),
        ("_bulk", "indices:data/write/bulk", "index", "create,index,write,all", "index privilege `write`"),
    ],
)
def test_a_privilege_that_is_missing_is_named_and_not_waited_for(
    double: SearchServer, call: str, action: str, of: str, granting: str, missing: str
) -> None:
    double.denied[call] = UNAUTHORIZED.format(action, " on indices [i]" if of == "index" else "", of, granting)
    with pytest.raises(
        Refused, match=re.escape(f"refuses access (403): the key or user lacks the {missing}: action [{action}]")
    ):
        vectors(double).build([DOCUMENTS], SIGNATURE)
    assert double.indexes == {}


@pytest.mark.parametrize("status", [401, 403])
def test_a_search_and_a_document_that_we_may_not_send_are_refused_for_good(double: SearchServer, status: int) -> None:
    terms(double).build([DOCUMENTS], SIGNATURE)
    double.replies = [make_failure(status, "security_exception", "as told")]
    assert isinstance(refusal(double), Refused)
    double.refused[DOCUMENTS[3][0]] = [status]
    with pytest.raises(Refused, match=rf"refuses access \({status}\): as told"):
        terms(double).build([DOCUMENTS], SIGNATURE)


@pytest.mark.parametrize("product", [None, "OpenSearch"])
def test_another_product_is_said_so(double: SearchServer, product: str | None) -> None:
    terms(double).build([DOCUMENTS], SIGNATURE)
    double.product = product
    said = refusal(double)
    assert "is not an Elasticsearch" in said.message
    assert "forks such as OpenSearch are not supported" in str(said.hint)


def test_another_version_is_said_so(double: SearchServer) -> None:
    double.version = 8
    said = refusal(double)
    assert "is not supported" in said.message
    assert "a server of version 9" in str(said.hint)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        *((status, Unavailable, f"is overloaded or not ready ({status})") for status in (429, 502, 503, 504)),
        (500, Unavailable, "failed (500)"),
        (400, Invalid, "refuses a request"),
        (418, Invalid, "refuses a request"),
    ],
)
def test_what_the_server_says_is_passed_on(double: SearchServer, status: int, kind: type, words: str) -> None:
    double.fail("_msearch", status)
    said = refusal(double)
    assert type(said) is kind
    assert words in said.message
    assert said.message.endswith(f"({status}): as the test told it")
    assert said.hint


PART = {"hits": {"hits": []}, "status": 200}
MISSING = "Search rejected due to missing shards [[it][0]]."
"""As 9.5.3 says it where partial results are not allowed."""


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({**PART, "timed_out": True, "_shards": {"failed": 0}}, "it stopped searching at its time limit (timed_out)"),
        ({**PART, "timed_out": False, "_shards": {"failed": 1}}, "1 shard failed"),
        (
            {
                "error": {
                    "root_cause": [], "type": "search_phase_execution_exception", "reason": "", "failed_shards": [],
                    "caused_by": {"type": "search_phase_execution_exception", "reason": MISSING, "failed_shards": []},
                },
                "status": 503,
            },
            f"(503): {MISSING}",
        ),
        (shards_failed(503, "no_shard_available_action_exception", None), "(503): no_shard_available_action_exception"),
        (shards_failed(429, "circuit_breaking_exception", "Data too large"), "(429): Data too large"),
    ],
)  # fmt: skip
def test_a_part_of_the_hits_is_an_outage_that_names_its_cause(double: SearchServer, reply: Any, words: str) -> None:
    terms(double).build([DOCUMENTS], SIGNATURE)
    double.replies = [reply]
    said = refusal(double)
    assert said.message.endswith(words)
    assert said.hint


def test_a_search_that_is_refused_for_now_is_sent_again_alone(double: SearchServer) -> None:
    index = terms(double).build([DOCUMENTS], SIGNATURE)
    expected = index.search(["circle", "prime"], 3)
    double.replies = [shards_failed(429, "es_rejected_execution_exception", "rejected")]
    before = len(double.bodies)
    assert index.search(["circle", "prime"], 3) == expected
    assert ["circle" in str(body) for body in double.bodies[before:]] == [True, False, True]


def test_an_index_that_is_gone_is_said_so(double: SearchServer) -> None:
    said = refusal(double)
    assert f"no such index [{TERMS}]" in said.message
    assert said.hint == index_module.REBUILD


@pytest.mark.parametrize("damage", ["gone", "fewer"])
def test_a_sound_folder_whose_index_is_not_is_refused(double: SearchServer, tmp_path: Path, damage: str) -> None:
    backend = terms(double)
    recipe = builds.make_recipe(backend, "cd" * 32)
    signature = canonical.digest(recipe).hex()
    folder, registered = index_module.write_index(tmp_path, recipe, backend.build([DOCUMENTS], signature))
    backend.check(folder)
    held = double.indexes[f"mathrag-sparse-{signature}"]
    if damage == "gone":
        double.indexes.clear()
    else:
        held.shown.popitem()
    index_module.verify(folder, recipe, registered)
    with pytest.raises(
        Unavailable, match="no such index" if damage == "gone" else "has 5 documents on the server, but 6"
    ):
        backend.check(folder)


def test_a_folder_names_the_index_and_its_size(double: SearchServer, tmp_path: Path) -> None:
    vectors(double).build([DOCUMENTS], SIGNATURE).save(tmp_path)
    assert json.loads((tmp_path / elasticsearch.FILE).read_text()) == {"index": VECTORS, "documents": 6}


def test_the_alias_names_the_build_that_is_used_now(double: SearchServer, tmp_path: Path) -> None:
    backend = terms(double)
    for signature in ("a" * 64, "b" * 64):
        (tmp_path / signature).mkdir()
        backend.build([DOCUMENTS], signature).save(tmp_path / signature)
    for signature in ("a" * 64, "b" * 64, "b" * 64):
        backend.point(tmp_path / signature, 7)
        assert double.aliases == {"mathrag-sparse-corpus-7": {f"mathrag-sparse-{signature}"}}
    assert double.calls("_aliases") == 3
    assert len(double.indexes) == 2


def test_the_environment_names_the_server(double: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICSEARCH_URL", double.url)
    assert ElasticsearchServer(Elasticsearch()).indexes() == []
    monkeypatch.setenv("ELASTICSEARCH_URL", "http://127.0.0.1:9")
    assert client(double).indexes() == []


def test_a_proxy_of_the_environment_is_not_used(double: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client(double).indexes() == []


def test_no_server_is_said_so(double: SearchServer) -> None:
    for retrieval in (
        Retrieval(dense=Dense(backend="elasticsearch")),
        Retrieval(sparse=Sparse(backend="elasticsearch")),
    ):
        with pytest.raises(Unavailable, match="no Elasticsearch server is configured") as caught:
            make_backends(retrieval, HashedWords())
        assert "`retrieval.elasticsearch.url`" in str(caught.value.hint)
    assert len(make_backends(Retrieval(), HashedWords())) == 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1:9200", "is not a URL"),
        ("ftp://search:9200", "needs http:// or https://"),
        ("http://search", "needs http:// or https://, a host and a port"),
        ("http://:9200", "a host and a port"),
        ("http://elastic:secret@search:92000", "is not a URL"),
        ("http://elastic:se cret@search:9200", "a space or a control character"),
        ("http://search:9200/?secret=1", "must not contain `\\?`"),
    ],
)
def test_a_url_that_is_none_is_refused_when_settings_are_read(
    url: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_URL", url)
    for source, retrieval in (
        ("`retrieval.elasticsearch.url`", {"elasticsearch": {"url": url}}),
        ("ELASTICSEARCH_URL", {"dense": {"backend": "elasticsearch"}}),
    ):
        with pytest.raises(ValidationError, match=f"{source} .*{words}") as caught:
            Settings(retrieval=retrieval)  # type: ignore[arg-type]
        assert "cret" not in str(caught.value)
    assert Retrieval().elasticsearch.url == ""


@pytest.mark.parametrize("key", ["c2Vj\ncmV0", "c2VjcmV0\n", "c2Vj cmV0", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_when_settings_are_read(key: str) -> None:
    with pytest.raises(ValidationError, match="remove spaces and line breaks") as caught:
        Settings(retrieval={"elasticsearch": {"api_key": key}})  # type: ignore[arg-type]
    assert key not in str(caught.value)


def test_settings_choose_the_server(double: SearchServer) -> None:
    retrieval = Retrieval(
        dense=Dense(backend="elasticsearch", neighbours=8),
        sparse=Sparse(backend="elasticsearch", k1=2, chinese="bigrams"),
        elasticsearch=Elasticsearch(url=double.url, prefix="mine", vectors="int8_hnsw"),
    )
    recipes = [backend.recipe() for backend in make_backends(retrieval, HashedWords())]
    assert [(each["backend"], each.get("neighbours"), each.get("k1")) for each in recipes] == [
        ("elasticsearch int8_hnsw", 8, None), ("elasticsearch BM25", None, 2),
    ]  # fmt: skip
    make_backends(retrieval, HashedWords())[1].build([DOCUMENTS], SIGNATURE)
    assert list(double.indexes) == [f"mine-sparse-{SIGNATURE}"]


def test_a_node_that_is_away_is_passed_over(double: SearchServer) -> None:
    away = "http://elastic:secret@127.0.0.1:9"
    for urls in ([away, double.url], [double.url, away]):
        index = terms(double, url="", urls=urls).build([DOCUMENTS], SIGNATURE)
        for _ in range(3):
            assert len(index.search(["circle"], 3)[0]) == 2
    said = refusal(double, url="", urls=[away, away.replace("127.0.0.1", "localhost")])
    assert said.message.startswith("Elasticsearch at 127.0.0.1:9, localhost:9 cannot be reached: ")
    assert "secret" not in f"{said.message} {said.hint}"


def test_nodes_are_named_once_and_never_shown() -> None:
    nodes = ("https://elastic:secret@a:9200", "https://elastic:secret@b:9200")
    with pytest.raises(ValidationError, match="set `url` or `urls`, not both"):
        Elasticsearch(url=nodes[0], urls=nodes)
    with pytest.raises(ValidationError, match=r"`retrieval\.elasticsearch\.urls` needs .* a port") as caught:
        Elasticsearch(urls=(nodes[0], "https://elastic:secret@b"))
    both = Elasticsearch(urls=nodes)
    assert both.addresses == nodes
    assert "secret" not in f"{caught.value} {both!r} {both.model_dump()}"


@pytest.mark.parametrize("replicas", [0, 2])
def test_an_index_has_the_replicas_of_the_settings(double: SearchServer, replicas: int) -> None:
    index = vectors(double, replicas=replicas).build([DOCUMENTS], SIGNATURE)
    assert double.indexes[VECTORS].settings["number_of_replicas"] == replicas
    index.search(["circle", "prime", "circle"], 3)
    first, second, third = double.preferences
    assert (first == third, first == second, first is None) == (True, not replicas, not replicas)


@pytest.mark.parametrize("graph", ["int8_hnsw", "bbq_hnsw"])
def test_a_graph_of_bytes_or_bits_is_scored_again_with_the_floats(double: SearchServer, graph: VectorGraph) -> None:
    backend = ElasticsearchVectors(client(double), HashedWords(), Dense(), graph)
    backend.build([DOCUMENTS], SIGNATURE).search(["circle"], 3)
    assert double.indexes[VECTORS].properties["vector"]["index_options"]["type"] == graph
    assert double.bodies[-1]["knn"]["rescore_vector"] == {"oversample": 3.0}
    floats = ElasticsearchVectors(client(double), HashedWords(), Dense())
    assert (backend.recipe()["backend"], floats.recipe()["backend"]) == (f"elasticsearch {graph}", "elasticsearch hnsw")
    assert "oversample" not in floats.recipe()


@given(st.floats(-1, 1))
def test_a_score_is_turned_back_into_the_cosine(product: float) -> None:
    score = 1 + product if product >= 0 else 1 / (1 - product)
    assert score >= 0
    assert to_cosine(score) == pytest.approx(product, abs=1e-12)


# What the retriever says to the doctor of its Elasticsearch: each state of the server, with what mends it.


async def looked(url: str, **settings: Any) -> Check:
    chosen = {"url": url, **settings}
    return await checks.check_part("elasticsearch", Retrieval(elasticsearch=chosen))  # type: ignore[arg-type]


async def test_a_server_of_our_version_is_well(double: SearchServer) -> None:
    found = await looked(double.url)
    assert (found.ok, found.detail) == (True, f"Elasticsearch 9.{double.minor}")


async def test_no_address_ends_with_the_setting() -> None:
    assert "ELASTICSEARCH_URL" in (await looked("")).fix


async def test_a_server_of_another_version_is_not_well(double: SearchServer) -> None:
    double.version = 8
    found = await looked(double.url)
    assert not found.ok
    assert "is not supported" in found.detail
    assert "must name a server of version 9" in found.fix


async def test_another_product_is_not_well(double: SearchServer) -> None:
    double.product = None
    found = await looked(double.url)
    assert not found.ok
    assert "is not an Elasticsearch" in found.detail
    assert "forks such as OpenSearch are not supported" in found.fix


async def test_a_server_that_refuses_us_ends_with_the_key(double: SearchServer) -> None:
    double.credentials = {"ApiKey right"}
    found = await looked(double.url, api_key="wrong-key")
    assert not found.ok
    assert "retrieval.elasticsearch.api_key" in found.fix
    assert "wrong-key" not in str(found)


async def test_privileges_that_the_key_lacks_are_named(double: SearchServer) -> None:
    double.lacking = {"monitor", "manage"}
    found = await looked(double.url, prefix="ours")
    assert not found.ok
    assert found.detail.endswith("lacks `monitor` on the cluster, `manage` on the indexes `ours-*`")
    assert "docs/how-to/retrieval.md#api-key-of-elasticsearch" in found.fix
    double.lacking = set()
    assert (await looked(double.url)).ok


async def test_a_server_that_is_down_is_to_be_started(double: SearchServer) -> None:
    found = await looked("http://127.0.0.1:9")
    assert not found.ok
    assert "127.0.0.1:9 cannot be reached" in found.detail
    assert found.fix.startswith("start it")


async def test_what_is_not_looked_at_here_is_not_found() -> None:
    with pytest.raises(NotFound, match="elasticsearch"):
        await checks.check_part("weather", Retrieval())


async def test_other_errors_of_a_model_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: Any = {"kind": "gguf", "path": "/nowhere.gguf"}
    found = await checks.check_part("embeddings", Retrieval(embeddings=chosen))
    assert (found.name, found.ok) == ("embeddings", False)
    assert "/nowhere.gguf" in found.detail
