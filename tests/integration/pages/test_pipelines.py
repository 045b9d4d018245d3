import re
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from shared.params import Params
from shared.pipelines import registry
from shared.rag.fusion import rrf
from shared.replies import Atom, Document, Rule, Term
from shared.samples import Library, Sample, Steps
from shared.shapes import Scope
from shared.storage import rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin
from tests.integration import rule_banks, scene
from tests.integration.api import Api
from tests.integration.pages.browsing import look, next_page, rows, sign_in, text
from tests.integration.test_search_api import HASHES, Retriever

# Pipelines: what they do step by step, and the parameters that they read.


pytestmark = pytest.mark.anyio


async def test_a_list_says_what_every_pipeline_does(api: Api) -> None:
    found = {row.split()[0]: row for row in rows(await text(api, "/pipelines"))}
    assert tuple(sorted(found)) == registry.list_offered()
    assert found["closed-book"].endswith("Generate without documents. generate no")
    assert found["mathrag-gate"].endswith("generate, judge yes, calibrates first")


async def test_every_pipeline_has_a_page(api: Api, subtests: pytest.Subtests) -> None:
    for name in registry.list_offered():
        with subtests.test(name=name):
            page = await text(api, f"/pipelines/{name}")
            registered = registry.get(name)
            shown = {row.split()[0] for row in rows(page)}
            assert shown
            assert not {path for path in shown if registered.ignores(path)}
            assert {
                path for path in ("generate.temperature", "rrf_k", "gate.tau") if not registered.ignores(path)
            } <= shown


async def test_a_pipeline_is_shown_step_by_step(api: Api) -> None:
    page = await text(api, "/pipelines/mathrag-gate")
    assert "Once per job, for each calibration item" in page
    assert "rate a document with the judge model" in page
    assert "Seed document 000" in page
    found = await api.get("/v1/pipelines/mathrag-gate")
    assert [step["calls"] for step in found["steps"]] == [{"retrieve": 2}, {"judge": 10}, {"generate": 1}]
    assert found["calibration"][0]["calls"] == {"retrieve": 2}
    assert (await api.get("/v1/pipelines/dense"))["calibration"] == []


async def test_a_parameter_has_default_bounds_and_meaning(api: Api) -> None:
    tau = next(row for row in rows(await text(api, "/pipelines/mathrag-gate")) if row.startswith("gate.tau"))
    assert (
        tau
        == "gate.tau 0.45 -1 to 1 Correlation between rule scores and judge scores above which rules replace the judge."
    )
    change = {"params": {"gate": {"tau": 0.3}}}
    await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})
    tau = next(row for row in rows(await text(api, "/pipelines/mathrag-gate")) if row.startswith("gate.tau"))
    assert tau.startswith("gate.tau 0.3 configured , 0.45 shipped -1 to 1")


async def test_jobs_with_a_pipeline_are_linked(api: Api) -> None:
    assert "mathrag job submit --name NAME --dataset NAME --pipeline dense --corpus NAME" in await text(
        api, "/pipelines/dense"
    )
    await api.job("dense")
    assert rows(await text(api, "/pipelines/dense"))[-1].startswith("a-job")
    assert "/submit?pipeline=dense" in await text(api, "/pipelines/dense")


async def test_an_unknown_pipeline_is_told_from_what_was_meant(api: Api) -> None:
    for name, meant in (
        ("mathrag-gat", "did you mean &#39;mathrag-gate&#39;?"),
        ("mine-rules", "mathrag pipeline list"),
    ):
        reply = await look(api, f"/pipelines/{name}")
        assert reply.status_code == 404
        assert meant in reply.text


async def test_a_pipeline_of_somebody_else_is_shown_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(sample: Sample, params: Params, library: Library) -> Steps:
        return (yield from scene.two_questions(sample, params, library))

    silent.__doc__ = None
    scene.install(monkeypatch, "silent", silent)
    page = await text(api, "/pipelines/silent")
    assert len(rows(page)) > 100


# Rule banks: who mined them of what, and their rules, the most certain first.

RULES_HOSTILE = "<script>alert(1)</script>\u202e"


def rule(head: str, confidence: float, support: int = 5, body: str = "b", subject: Term = 0) -> Rule:
    return Rule(
        head=Atom(head, 0, 1), body=(Atom(body, subject, 1),), support=support, body_size=10, confidence=confidence
    )  # fmt: skip


async def store(database: Database, name: str, *found: Rule) -> None:
    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield found

    await rules.create_imported(database, name, ImportOrigin("amie"), batches())


async def test_without_a_bank_the_page_says_how_to_mine_one(empty_api: Api) -> None:
    assert "mathrag rules mine --graph NAME --name NAME --wait" in await text(empty_api, "/rules")


async def test_a_bank_is_listed_while_it_is_mined_and_afterwards(api: Api, database: Database) -> None:
    await rule_banks.store_graph(database)
    assert (await api.http.post("/v1/rules", json=rule_banks.request())).status_code == 202
    assert rows(await text(api, "/rules"))[0].startswith("bank mining g amie")
    page = await text(api, "/rules/bank")
    assert "This bank is being mined (" in page
    assert "mathrag job watch" in page
    await rule_banks.work(database)
    assert rows(await text(api, "/rules"))[0].startswith("bank ready g amie")
    page = await text(api, "/rules/bank")
    assert "mined from the graph g" in page
    assert "/v1/rules/bank/export?format=amie" in page


async def test_a_bank_that_failed_says_why(api: Api, database: Database) -> None:
    await rule_banks.store_graph(database)
    reply = await api.http.post("/v1/rules", json=rule_banks.request())
    await api.http.post(f"/v1/jobs/{reply.json()['job']}/cancel")
    await rule_banks.work(database)
    page = await text(api, "/rules/bank")
    assert "its job was cancelled" in page
    assert "mathrag rules mine --graph g --name bank" in page


async def test_rules_are_read_from_their_bodies_the_most_certain_first(api: Api, database: Database) -> None:
    await store(database, "bank", rule("a", 0.2), rule("b", 0.9), rule("a", 0.5))
    assert rows(await text(api, "/rules/bank")) == [
        "b(X, Y) → b(X, Y) 0.900 5 of 10",
        "b(X, Y) → a(X, Y) 0.500 5 of 10",
        "b(X, Y) → a(X, Y) 0.200 5 of 10",
    ]
    shown = rows(await text(api, "/rules/bank?order=bank"))
    assert [row.split()[-4] for row in shown] == ["0.200", "0.900", "0.500"]
    found = (await api.get("/v1/rules/bank/rules", order="confidence"))["data"]
    assert [each["confidence"] for each in found] == [0.9, 0.5, 0.2]


async def test_rules_are_filtered_by_relation_confidence_and_support(
    api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    await store(database, "bank", rule("a", 0.2), rule("b", 0.9, support=6), rule("a", 0.5))
    for query, left in (
        ("head=a", [0.5, 0.2]),
        ("min_confidence=0.5", [0.9, 0.5]),
        ("min_support=6", [0.9]),
        ("head=&min_support=", 3),
        ("head=a&min_confidence=0.5&min_support=6", []),
    ):
        with subtests.test(query=query):
            page = await text(api, f"/rules/bank?{query}")
            shown = [float(row.split()[-4]) for row in rows(page)]
            assert left in (shown, len(shown))
            assert shown or "No rule matches these filters" in page


@pytest.mark.parametrize("order", ["confidence", "bank"])
async def test_every_rule_is_on_one_page_whatever_their_confidence(api: Api, database: Database, order: str) -> None:
    await store(database, "bank", *(rule("a", 0.1 + at % 3 / 10, support=at + 1) for at in range(25)))
    path: str | None = f"/rules/bank?limit=4&order={order}"
    seen = []
    while path:
        page = await text(api, path)
        seen += [row.split()[-3] for row in rows(page)]
        path = next_page(page)
    assert sorted(seen, key=int) == [str(at) for at in range(1, 26)]


async def test_a_filter_that_cannot_be_used_is_named(api: Api, database: Database, subtests: pytest.Subtests) -> None:
    await store(database, "bank", rule("a", 0.2))
    for query, status in (
        ("min_confidence=2", 422),
        ("min_support=0", 422),
        ("order=worst", 422),
        ("cursor=x", 400),
        ("limit=9999", 422),
        ("min_support=99999999999999999999", 422),
        ("heads=a", 422),
    ):
        with subtests.test(query=query):
            assert (await look(api, f"/rules/bank?{query}")).status_code == status


async def test_a_cursor_of_other_filters_is_refused(api: Api, database: Database) -> None:
    await store(database, "bank", *(rule("a", at / 10) for at in range(1, 9)))
    path = next_page(await text(api, "/rules/bank?limit=4"))
    assert path
    assert (await look(api, path.replace("limit=4", "min_confidence=0.5"))).status_code == 400


async def test_hostile_names_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    await store(database, "evil", rule(RULES_HOSTILE, 0.5, body=RULES_HOSTILE, subject=RULES_HOSTILE))
    page = await text(api, "/rules/evil")
    assert "<script>alert" not in page
    assert "U+202E" in page
    assert "%3Cscript%3E" in page


async def test_an_unknown_bank_is_told_from_what_was_meant(api: Api, database: Database) -> None:
    await store(database, "bank", rule("a", 0.2))
    reply = await look(api, "/rules/bnak")
    assert reply.status_code == 404
    assert "did you mean &#39;bank&#39;?" in reply.text


async def test_jobs_that_follow_a_bank_are_linked(api: Api, database: Database) -> None:
    await store(database, "bank", rule("a", 0.2), rule("a", 0.4))
    assert "--pipeline rulerag --set rules=bank" in await text(api, "/rules/bank")
    await api.job("rulerag", params={"rules": "bank"})
    assert rows(await text(api, "/rules/bank"))[-1].startswith("a-job")
    found = await api.get("/v1/rules/bank")
    assert found["heads"] == [{"relation": "a", "rules": 2, "best": 0.4}]
    assert found["followed_by"][0]["roles"] == ["rules"]


# `/search`: what was found and why, bad input beside its field, and texts that would like to be more than texts.

SEARCH_HOSTILE = Document(
    problem="\u202eeman<script>alert(1)</script> $x^2$", text="</p><img src=x onerror=alert(1)> plus \\(y\\)"
)


@pytest.fixture
async def searched(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 1)
    ((dense, sparse),) = await scene.rows(database, "SELECT dense_index, sparse_index FROM corpora")
    empty_api.other = Retriever({int(str(dense)): HASHES, int(str(sparse)): HASHES[::-1]})
    return empty_api


def found(page: str) -> list[str]:
    drawn = re.findall(r'<li class="card" data-row.*?</li>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in drawn]


async def test_a_document_says_in_which_lists_it_was_and_what_that_added(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=3")
    best, score = rrf([HASHES[:10], HASHES[::-1][:10]])[0]
    shown = found(page)
    assert len(shown) == 3
    assert best[:12] in shown[0]
    assert f"vectors (flat) 1 1 {1 / 61:.3g}" in " ".join(shown)
    assert f"fused {score:.3g}" in shown[0]
    assert "60 + rank" in page


async def test_one_method_alone_has_no_fusion(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=2&method=dense")
    assert "by vectors (flat) alone" in page
    assert "fused" not in " ".join(found(page))


async def test_parameters_of_the_search_count_and_stay_in_the_form(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&params.rrf_k=1&params.fusion.dense=0.9")
    assert "weight / (1 + rank)" in page
    assert re.search(r'name="params.fusion.dense"[^>]* value="0.9"', page)
    assert "vectors (flat) 0.9, BM25 0.5" in page


async def test_quality_and_a_reranker_that_is_missing_are_said(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=1&quality=true&rerank=true")
    assert "reasoning, by rules" in found(page)[0]
    assert "rerank: original order (not configured)" in page


async def test_matching_words_are_marked_and_words_of_any_question_are_not(searched: Api) -> None:
    page = await text(searched, "/search?q=What+is+3+plus+4&corpus=docs&method=dense&k=5")
    assert "What is <mark>3</mark> <mark>plus</mark> <mark>3</mark>?" in page
    assert '<span class="math">\\boxed{6}</span>' in page


async def test_hostile_documents_and_questions_are_texts(searched: Api, database: Database) -> None:
    await scene.run_sql(
        database, "INSERT INTO documents VALUES (:h, :p, :b)", h=bytes.fromhex(SEARCH_HOSTILE.hash),
        p=SEARCH_HOSTILE.problem, b=SEARCH_HOSTILE.text,
    )  # fmt: skip
    retriever = searched.other
    assert isinstance(retriever, Retriever)
    retriever.indexes = {index: [SEARCH_HOSTILE.hash] for index in retriever.indexes}
    page = await text(searched, '/search?q="><script>alert(2)</script>+plus&corpus=docs')
    assert "<script>" not in page
    assert "<img" not in page
    assert "U+202E" in page
    assert "&lt;script&gt;alert" in page


async def test_bad_values_are_said_and_the_form_keeps_what_was_written(
    searched: Api, subtests: pytest.Subtests
) -> None:
    for query, status, words in (
        ("corpus=nope", 404, "no corpus &#39;nope&#39;"),
        ("corpus=docs&k=0", 422, "input should be greater than or equal to 1"),
        ("corpus=docs&method=best", 422, "should be &#39;dense&#39;"),
        ("corpus=docs&params.candidates=ten", 422, "must be a whole number between 1 and 1000"),
        ("corpus=docs&params.rrf_k=0", 422, "must be between 1 and 1000000"),
        ("corpus=docs&params.gate.tau=0.5", 422, "a search would not read it"),
        ("corpus=docs&params.fusion=1", 422, "must be a group of method, normaliser"),
        ("corpus=docs&foo=1", 422, "there is no such field"),
        ("corpus=docs&params.fusion.normalizer=rank", 422, "there is no such field"),
    ):
        with subtests.test(query=query):
            reply = await look(searched, f"/search?q=keep+this&{query}")
            assert reply.status_code == status
            assert words in reply.text
            assert 'value="keep this"' in reply.text


async def test_a_message_stands_beside_its_field(searched: Api) -> None:
    page = (await look(searched, "/search?q=x&corpus=docs&params.candidates=ten")).text
    field = page.partition('name="params.candidates"')[2].partition("</div>")[0]
    assert 'aria-describedby="params.candidates-error"' in field
    assert 'id="params.candidates-error"' in field
    assert 'value="ten"' in field


async def test_a_retriever_that_is_away_is_said_as_the_api_says_it(searched: Api) -> None:
    def away(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("too slow", request=request)

    searched.other = away
    reply = await look(searched, "/search?q=What&corpus=docs")
    assert reply.status_code == 503
    assert "the retriever did not answer (ReadTimeout)" in reply.text
    assert "GET /readyz" in reply.text


async def test_a_service_without_a_corpus_says_how_to_make_one(empty_api: Api) -> None:
    page = await text(empty_api, "/search")
    assert "No corpus exists yet" in page
    assert "mathrag corpus create NAME --from FILE" in page


async def test_without_a_question_nothing_is_searched(searched: Api) -> None:
    page = await text(searched, "/search?corpus=docs")
    assert searched.asked == []
    assert rows(page) == []


async def test_searching_needs_the_scope_read(keyed: Api, database: Database) -> None:
    assert (await look(keyed, "/search?q=x&corpus=docs")).status_code == 303
    await sign_in(keyed, database, Scope.SUBMIT)
    assert (await look(keyed, "/search?q=x&corpus=docs")).status_code == 403
