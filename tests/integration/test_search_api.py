"""`POST /v1/search`: what the retriever finds, fused as the pipelines do, shown with the corpus's own ids."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from shared.rag.fusion import rrf
from shared.rag.gate import score_document
from shared.runtime.pins import NO_RERANKER, ModelIdentity, register
from shared.settings import Reranker, Retrieval
from shared.storage.corpora import LONGEST_TEXT
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

HASHES = [document.hash for document in scene.DOCUMENTS]


class Retriever:
    def __init__(self, indexes: dict[int, list[str]]) -> None:
        self.indexes = indexes
        self.asked: list[dict[str, Any]] = []
        self.scored: list[dict[str, Any]] = []
        """Requests to rerank."""
        self.best = 1.0
        """Similarity of the first hit."""
        self.score: Callable[[str], float] = len
        """What the reranker makes of a text."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/rerank":
            self.scored.append(json.loads(request.content))
            scores = [self.score(text) for text in self.scored[-1]["documents"]]
            return httpx2.Response(200, json={"type": "scored", "scores": scores})
        assert request.url.path == "/search"
        self.asked += json.loads(request.content)["searches"]
        return httpx2.Response(200, json=[self._reply(search) for search in json.loads(request.content)["searches"]])

    def _reply(self, search: dict[str, Any]) -> dict[str, Any]:
        found = self.indexes[search["index"]][: search["k"]]
        hits = [{"document": hash_, "rank": n, "score": self.best / n} for n, hash_ in enumerate(found, 1)]
        return {"type": "retrieved", "hits": hits, "duplicates": [HASHES[-1]]}


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 1)
    await scene.run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT c.id, u.n, 'doc-' || u.n, u.hash FROM corpora c, unnest(CAST(:hashes AS bytea[])) WITH ORDINALITY"
        " u(hash, n)",
        hashes=[bytes.fromhex(hash_) for hash_ in HASHES],
    )
    ((dense, sparse),) = await scene.rows(database, "SELECT dense_index, sparse_index FROM corpora")
    empty_api.other = Retriever({int(str(dense)): HASHES, int(str(sparse)): HASHES[::-1]})
    return empty_api


async def search(api: Api, **fields: Any) -> Any:
    reply = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs", **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize(("mode", "order"), [("dense", HASHES), ("sparse", HASHES[::-1])])
async def test_one_index_is_shown_as_it_answers(api: Api, mode: str, order: list[str]) -> None:
    found = await search(api, mode=mode, k=3)
    assert (found["corpus"], found["mode"], found["duplicates"]) == ("docs", mode, [HASHES[-1]])
    assert [hit["hash"] for hit in found["hits"]] == order[:3]
    first = found["hits"][0]
    number = HASHES.index(order[0])
    assert (first["id"], first["rank"], first["score"]) == (f"doc-{number + 1}", 1, 1.0)
    assert (first["problem"], first["text"]) == (scene.DOCUMENTS[number].problem, scene.DOCUMENTS[number].text)
    other = "sparse" if mode == "dense" else "dense"
    assert (first[f"{mode}_rank"], first[f"{other}_rank"]) == (1, None)
    assert len(api.asked) == 1


async def test_hybrid_fuses_both_lists_as_the_pipelines_do(api: Api) -> None:
    found = await search(api, k=4)
    expected = rrf([HASHES[:10], HASHES[::-1][:10]])[:4]
    assert [(hit["hash"], hit["score"]) for hit in found["hits"]] == [(hash_, score) for hash_, score in expected]
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3, 4]
    assert len(api.asked) == 2
    assert found["duplicates"] == [HASHES[-1]]


@pytest.mark.parametrize("fields", [{}, {"enhance": True}, {"params": {"rrf_k": 3, "fusion": {"dense": 0.9}}}])
async def test_what_each_list_added_is_the_fused_score(api: Api, fields: dict[str, Any]) -> None:
    found = await search(api, question="apples plus pears", k=12, **fields)
    for hit in found["hits"]:
        assert sum(hit["contributions"].values()) == pytest.approx(hit["fused"])
    weights, rrf_k = found["fusion"]["weights"], found["fusion"]["rrf_k"]
    both = next(hit for hit in found["hits"] if hit["dense_rank"] and hit["sparse_rank"])
    by_dense, by_sparse = list(both["contributions"].values())[:2]
    expected = weights["dense"] / (rrf_k + both["dense_rank"]) * (rrf_k + both["sparse_rank"]) / weights["sparse"]
    assert by_dense / by_sparse == pytest.approx(expected)


async def test_lists_that_are_added_by_score_or_stand_alone_have_no_parts(api: Api) -> None:
    weighted = await search(api, k=1, params={"fusion": {"method": "weighted"}})
    assert weighted["fusion"]["normaliser"] == "min-max"
    alone = await search(api, k=1, mode="dense")
    assert alone["fusion"] is None
    assert weighted["hits"][0]["contributions"] is alone["hits"][0]["contributions"] is None


async def test_quality_is_what_the_rules_of_the_gate_say(api: Api) -> None:
    plain, rated = await search(api, k=3), await search(api, k=3, quality=True)
    assert [hit["hash"] for hit in rated["hits"]] == [hit["hash"] for hit in plain["hits"]]
    assert [hit["quality"] for hit in plain["hits"]] == [None] * 3
    for hit in rated["hits"]:
        scored = score_document(scene.DOCUMENTS[HASHES.index(hit["hash"])])
        assert (hit["quality"], hit["features"]) == (scored.score, scored.features)


async def test_a_search_looks_at_as_many_documents_as_a_job_and_shows_the_first(api: Api) -> None:
    for fields, asked in (({"k": 3}, 10), ({"k": 12}, 12), ({"k": 3, "params": {"candidates": 15}}, 15),
                          ({"k": 3, "params": {"candidates": 1000}}, 100)):  # fmt: skip
        assert len((await search(api, **fields))["hits"]) == fields["k"]
        assert [each["k"] for each in api.other.asked[-2:]] == [asked, asked]  # type: ignore[attr-defined]
    change = {"params": {"candidates": 17}}
    assert (await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})).status_code == 200
    await search(api, k=3)
    assert api.other.asked[-1]["k"] == 17  # type: ignore[attr-defined]


async def test_lists_are_fused_as_the_parameters_say(api: Api) -> None:
    params = {"fusion": {"method": "weighted", "normaliser": "rank", "dense": 1, "sparse": 0}, "candidates": 5}
    found = await search(api, k=5, params=params)
    assert [hit["hash"] for hit in found["hits"]] == HASHES[:5]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])


async def test_the_threshold_is_asked_of_the_list_by_vectors_alone(api: Api) -> None:
    await search(api, k=1, params={"dense": {"threshold": 0.7}})
    assert {each["threshold"] for each in api.other.asked[-2:]} == {0.7, None}  # type: ignore[attr-defined]


@pytest.fixture
async def reranker(database: Database) -> ModelIdentity:
    identity = ModelIdentity(name=NO_RERANKER.name, backend="endpoint", digest="a-reranker")
    async with database.transaction() as connection:
        await register(connection, identity)
    return identity


async def test_the_configured_reranker_puts_them_in_order(api: Api, reranker: ModelIdentity) -> None:
    number = {f"{each.problem}\n{each.text}": n / 100 for n, each in enumerate(scene.DOCUMENTS)}
    api.other.score = number.__getitem__  # type: ignore[attr-defined]
    found = await search(api, k=3, mode="dense", rerank=True, params={"candidates": 8, "rerank": {"threshold": 0.05}})
    assert [hit["hash"] for hit in found["hits"]] == HASHES[7:4:-1]
    assert [(hit["rank"], hit["relevance"], hit["dense_rank"]) for hit in found["hits"]] == [
        (1, 0.07, 8), (2, 0.06, 7), (3, 0.05, 6),
    ]  # fmt: skip
    (asked,) = api.other.scored  # type: ignore[attr-defined]
    assert (asked["model"], asked["question"], len(asked["documents"])) == (reranker.hash.hex(), "What?", 8)
    (decision,) = found["decisions"]
    assert (decision["stage"], decision["action"], decision["detail"]["kept"]) == ("rerank", "threshold", 3)


async def test_without_a_reranker_the_order_stays_and_says_why(api: Api) -> None:
    found = await search(api, mode="dense", rerank=True)
    assert [hit["hash"] for hit in found["hits"]] == HASHES[:10]
    assert found["decisions"] == [{"stage": "rerank", "action": "original order", "fallback": "not_configured"}]
    assert api.other.scored == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(("status", "slow", "kind"), [(500, False, "backend_error"), (200, True, "timeout")])
async def test_a_reranker_that_fails_is_left_out(
    api: Api, reranker: ModelIdentity, status: int, slow: bool, kind: str
) -> None:
    finding = api.other

    def failing(request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/rerank":
            return finding(request)
        if slow:
            raise httpx2.ReadTimeout("slow")
        return httpx2.Response(status, json={})

    api.other = failing
    found = await search(api, mode="sparse", rerank=True)
    assert [hit["hash"] for hit in found["hits"]] == HASHES[::-1][:10]
    assert [each["fallback"] for each in found["decisions"]] == [kind]


async def test_searches_and_reranking_wait_as_long_as_the_operator_says(
    api: Api, database: Database, redis_url: str, reranker: ModelIdentity
) -> None:
    retrieval = Retrieval(timeout_s=7, reranker=Reranker(timeout_s=5, batch=4))
    async with serving(database, redis_url, scene.SETTINGS.model_copy(update={"retrieval": retrieval})) as patient:
        patient.other = api.other
        await search(patient, rerank=True)
    waited = {request.url.path: request.extensions["timeout"]["read"] for request in patient.asked}
    assert waited == {"/search": 7, "/rerank": 20}


ASKED = "Please, what is the gcd of 12 and 18?"


async def test_an_enhanced_question_is_searched_for_in_two_wordings(api: Api) -> None:
    change = {"params": {"enhance": {"terms": {"gcd": ["a name of our own"]}}}}
    await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})
    found = await search(api, question=ASKED, enhance=True, k=3)
    asked = {(each["index"], each["question"]) for each in api.other.asked}  # type: ignore[attr-defined]
    wordings = {question for _, question in asked}
    rules = {(each["duplicates"], each["item"] or each["question"]) for each in api.other.asked}  # type: ignore[attr-defined]
    assert rules == {("same-answer", ASKED)}
    assert (len(asked), ASKED in wordings) == (4, True)
    (widened,) = wordings - {ASKED}
    assert widened.startswith("what is the gcd of 12 and 18?")
    assert "a name of our own" in widened
    stages = [each["stage"] for each in found["decisions"]]
    assert stages[:3] == ["intent", "clean", "synonyms"]
    assert set(found["hits"][0]["paths"]) <= {f"{a} {b}" for a in ("original", "widened") for b in ("dense", "sparse")}


@pytest.mark.parametrize("mode", ["dense", "sparse"])
async def test_a_mode_is_kept_to_however_the_question_is_worded(api: Api, mode: str) -> None:
    found = await search(api, question=ASKED, enhance=True, mode=mode, k=20)
    assert {name.split()[1] for hit in found["hits"] for name in hit["paths"]} == {mode}
    assert len({each["index"] for each in api.other.asked}) == 1  # type: ignore[attr-defined]


def without_sparse(finding: Any, sparse: int) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["searches"][0]["index"] == sparse:
            return httpx2.Response(503, json={"detail": "no answer from Elasticsearch", "hint": "see its log"})
        reply: httpx2.Response = finding(request)
        return reply

    return answer


async def test_an_index_that_is_away_is_left_out_of_an_enhanced_search_alone(api: Api, database: Database) -> None:
    sparse = await scene.scalar(database, "SELECT sparse_index FROM corpora")
    api.other = without_sparse(api.other, int(str(sparse)))
    found = await search(api, question="What is the area of a triangle?", enhance=True, k=3)
    lost = [each for each in found["decisions"] if each.get("fallback")]
    assert {(each["stage"], each["action"], each["fallback"]) for each in lost} == {
        ("retrieve", "dense alone", "backend_error")
    }
    assert [hit["hash"] for hit in found["hits"]] == HASHES[:3]
    refused = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs"})
    said = refused.json()
    assert (refused.status_code, said["detail"], said["hint"]) == (503, "no answer from Elasticsearch", "see its log")


@pytest.mark.parametrize(
    ("crag", "action"),
    [
        ({"evaluator": "similarity", "upper": 0.8, "lower": 0.1}, "correct"),
        ({"evaluator": "similarity", "upper": 0.9, "lower": 0.5}, "ambiguous"),
        ({"evaluator": "similarity", "upper": 1, "lower": 0.9}, "incorrect"),
    ],
)
async def test_what_was_found_is_evaluated_by_similarity(api: Api, crag: dict[str, Any], action: str) -> None:
    assert isinstance(api.other, Retriever)
    api.other.best = 0.5  # twice that less the list's mean: 0.85
    found = await search(api, crag=True, params={"crag": crag})
    assert found["action"] == action
    decision = found["decisions"][-1]
    assert (decision["stage"], decision["detail"]["evaluator"]) == ("crag", "similarity")
    assert decision["detail"]["upper"] == crag["upper"]
    assert "fallback" not in decision


async def test_the_judge_is_not_asked_and_similarity_stands_in(api: Api) -> None:
    found = await search(api, crag=True)
    decision = found["decisions"][-1]
    assert (decision["detail"]["evaluator"], decision["fallback"]) == ("similarity", "not_configured")
    assert (await search(api))["action"] is None


@pytest.mark.parametrize(
    ("fields", "action", "fallback"),
    [
        ({"params": {"crag": {"evaluator": "reranker", "upper": 0.95}}}, "ambiguous", None),
        ({"rerank": True}, "correct", "not_configured"),
    ],
)
async def test_the_reranker_evaluates_where_there_is_one(
    api: Api, reranker: ModelIdentity, fields: dict[str, Any], action: str, fallback: str | None
) -> None:
    change = {"params": {"crag": {"upper": 0.95}}}
    assert (await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})).status_code == 200
    api.other.score = lambda _: 0.9  # type: ignore[attr-defined]
    found = await search(api, crag=True, **fields)
    decision = found["decisions"][-1]
    assert (found["action"], decision["detail"]["evaluator"]) == (action, "reranker")
    assert decision.get("fallback") == fallback
    assert len(api.other.scored) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("crag", "field"),
    [
        ({"upper": 0.2, "lower": 0.9}, "params.crag.upper"),
        ({"upper": 0.9}, "params.crag.upper"),
        ({"lower": 0.1}, "params.crag.lower"),
        ({"rounds": 1}, "params.crag.rounds"),
        ({"evaluator": "reranker", "upper": 0.2}, "params.crag.upper"),
    ],
)
async def test_parameters_that_the_evaluation_would_not_read_are_refused(
    api: Api, crag: dict[str, Any], field: str
) -> None:
    body = {"question": "What?", "corpus": "docs", "crag": True, "params": {"crag": crag}}
    reply = await api.http.post("/v1/search", json=body)
    assert (reply.status_code, reply.json()["field"]) == (422, field)
    assert "hint" in reply.json() or "must be" in reply.json()["detail"]


async def test_without_vectors_similarity_knows_nothing(api: Api) -> None:
    found = await search(api, mode="sparse", crag=True, params={"crag": {"evaluator": "similarity"}})
    assert (found["action"], found["decisions"][-1]["detail"]["confidence"]) == ("ambiguous", None)


async def test_a_question_that_the_embedder_cannot_hold_is_refused(api: Api) -> None:
    api.other = lambda _: httpx2.Response(413, json={"detail": "600 tokens, the model holds 512", "hint": "max_chars"})
    reply = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs"})
    assert (reply.status_code, reply.json()["detail"]) == (413, "600 tokens, the model holds 512")


async def test_nothing_is_stored(api: Api, database: Database) -> None:
    await search(api)
    assert await scene.rows(database, "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM calls)") == [(0, 0)]


async def test_long_texts_are_cut_and_say_so(api: Api, database: Database, owner_url: str) -> None:
    owner = Database(owner_url, pinned=False)
    await scene.run_sql(owner, "ALTER TABLE documents DISABLE TRIGGER append_only")
    await scene.run_sql(owner, "UPDATE documents SET body = repeat('x', :n)", n=LONGEST_TEXT + 1)
    await scene.run_sql(owner, "ALTER TABLE documents ENABLE TRIGGER append_only")
    await owner.close()
    found = await search(api, mode="dense", k=1)
    assert (len(found["hits"][0]["text"]), found["hits"][0]["truncated"]) == (LONGEST_TEXT, True)


async def test_what_cannot_be_searched_is_named(api: Api, subtests: pytest.Subtests) -> None:
    for change, status, words in (
        ({"corpus": "nothing"}, 404, "no corpus 'nothing'"),
        ({"k": 101}, 422, "`k`"),
        ({"k": 0}, 422, "`k`"),
        ({"mode": "fuzzy"}, 422, "`mode`"),
        ({"question": ""}, 422, "`question`"),
        ({"question": "a\0b"}, 422, "`question`"),
        ({"top": 3}, 422, "`top`"),
        ({"params": {"fusion": {"method": "sum"}}}, 422, "`params.fusion.method`"),
        ({"params": {"fusion": {"dense": 0, "sparse": 0}}}, 422, "`params.fusion`"),
        ({"params": {"candidates": 1001}}, 422, "`params.candidates`"),
        ({"params": {"gate": {"tau": 0.3}}}, 422, "`params.gate.tau`: a search would not read it"),
        ({"params": {"candidates": 5, "context_size": 2}}, 422, "`params.context_size`: a search would not read it"),
        ({"params": {"grading": {"grader": "exact"}}}, 422, "`params.grading.grader`"),
    ):
        with subtests.test(change=change):
            reply = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs", **change})
            assert (reply.status_code, words in reply.json()["detail"]) == (status, True)
            assert api.asked == []


async def test_a_corpus_whose_indexes_are_not_built_is_unavailable(api: Api, database: Database) -> None:
    await scene.run_sql(database, "UPDATE indexes SET state = 'building' WHERE kind = 'sparse'")
    reply = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs"})
    assert (reply.status_code, reply.json()["type"]) == (503, "urn:mathrag:unavailable")


def _refused(_: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused")


@pytest.mark.parametrize(
    "away", [_refused, lambda _: httpx2.Response(500), lambda _: httpx2.Response(200, json={"strange": 1})]
)
async def test_a_retriever_that_is_away_is_a_problem(api: Api, away: Any) -> None:
    api.other = away
    reply = await api.http.post("/v1/search", json={"question": "What?", "corpus": "docs"})
    assert (reply.status_code, reply.json()["type"]) == (503, "urn:mathrag:unavailable")
    assert "/readyz" in reply.json()["hint"]
