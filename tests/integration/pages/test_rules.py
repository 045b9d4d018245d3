"""Rule banks: who mined them of what, and their rules, the most certain first."""

from collections.abc import AsyncIterator, Sequence

import pytest

from shared.replies import Atom, Rule, Term
from shared.storage import rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin
from tests.integration import mining
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import look, next_page, rows, text

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>\u202e"


def rule(head: str, confidence: float, support: int = 5, body: str = "b", subject: Term = 0) -> Rule:
    return Rule(
        head=Atom(head, 0, 1), body=(Atom(body, subject, 1),), support=support, body_size=10, confidence=confidence
    )  # fmt: skip


async def store(database: Database, name: str, *found: Rule) -> None:
    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield found

    await rules.create_imported(database, name, ImportOrigin("amie"), batches())


async def test_without_a_bank_the_page_says_how_to_mine_one(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url) as api:
        assert "mathrag rules mine --graph NAME --name NAME --wait" in await text(api, "/rules")


async def test_a_bank_is_listed_while_it_is_mined_and_afterwards(api: Api, database: Database) -> None:
    await mining.store_graph(database)
    assert (await api.http.post("/v1/rules", json=mining.request())).status_code == 202
    assert rows(await text(api, "/rules"))[0].startswith("bank mining g amie")
    page = await text(api, "/rules/bank")
    assert "It is being mined" in page
    assert "mathrag job watch" in page
    await mining.work(database)
    assert rows(await text(api, "/rules"))[0].startswith("bank ready g amie")
    page = await text(api, "/rules/bank")
    assert "mined from the graph g" in page
    assert "/v1/rules/bank/export?format=amie" in page


async def test_a_bank_that_failed_says_why(api: Api, database: Database) -> None:
    await mining.store_graph(database)
    reply = await api.http.post("/v1/rules", json=mining.request())
    await api.http.post(f"/v1/jobs/{reply.json()['job']}/cancel")
    await mining.work(database)
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


@pytest.mark.parametrize(
    ("query", "left"),
    [("head=a", [0.5, 0.2]), ("min_confidence=0.5", [0.9, 0.5]), ("min_support=6", [0.9]), ("head=&min_support=", 3),
     ("head=a&min_confidence=0.5&min_support=6", [])],
)  # fmt: skip
async def test_rules_are_filtered_by_relation_confidence_and_support(
    api: Api, database: Database, query: str, left: list[float] | int
) -> None:
    await store(database, "bank", rule("a", 0.2), rule("b", 0.9, support=6), rule("a", 0.5))
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


@pytest.mark.parametrize(
    ("query", "status"),
    [("min_confidence=2", 422), ("min_support=0", 422), ("order=worst", 422), ("cursor=x", 400), ("limit=9999", 422),
     ("min_support=99999999999999999999", 422), ("heads=a", 422)],
)  # fmt: skip
async def test_a_filter_that_cannot_be_used_is_named(api: Api, database: Database, query: str, status: int) -> None:
    await store(database, "bank", rule("a", 0.2))
    assert (await look(api, f"/rules/bank?{query}")).status_code == status


async def test_a_cursor_of_other_filters_is_refused(api: Api, database: Database) -> None:
    await store(database, "bank", *(rule("a", at / 10) for at in range(1, 9)))
    path = next_page(await text(api, "/rules/bank?limit=4"))
    assert path
    assert (await look(api, path.replace("limit=4", "min_confidence=0.5"))).status_code == 400


async def test_hostile_names_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    await store(database, "evil", rule(HOSTILE, 0.5, body=HOSTILE, subject=HOSTILE))
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
