"""`/rules`: banks of rules, and the rules of one."""

from fastapi import APIRouter, Response

from services.orchestrator.api.rules import RuleFilters
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import Turned
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages import rule_lines
from shared.pages.pages import address
from shared.storage import pages, rule_bank_details, rule_banks, rule_list

router = APIRouter()


class ShownRules(RuleFilters):
    """Here the most certain come first, unless the bank's order is asked for."""

    order: rule_list.Order = "confidence"


@page(router, "/rules")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first."""
    asked = visit.query(Turned)
    found = await rule_banks.listed(deps.database, pages.DEFAULT, asked.cursor)
    return visit.show(
        "rules/list.html", title="Rule banks", json=f"/v1/rules{address(asked.model_dump())}", found=as_json(found),
        first=asked.cursor is not None,
    )  # fmt: skip


@page(router, "/rules/{bank}")
async def one(bank: str, visit: Visitor, deps: RequestDeps) -> Response:
    """The bank, and the rules that the filters leave of it."""
    asked = visit.query(ShownRules)
    async with deps.database.transaction() as connection:
        found = await rule_bank_details.details(connection, bank)
        rules = await rule_list.page(connection, found.name, asked.chosen(), asked.limit, asked.cursor)
    query = asked.model_dump(exclude={"cursor"}, exclude_defaults=True)
    drawn = [
        {**each, "body": rule_lines.body(each), "head": rule_lines.atom(each["head"])} for each in as_json(rules.data)
    ]
    return visit.show(
        "rules/one.html", title=bank, json=_json(bank, asked, query), bank=as_json(found), rules=drawn, query=query,
        cursor=rules.next_cursor, first=asked.cursor is not None, asked=asked.model_dump(),
    )  # fmt: skip


def _json(bank: str, asked: ShownRules, query: dict[str, object]) -> str:
    """The rules, once they are filtered or turned; else the bank."""
    if not query and asked.cursor is None:
        return f"/v1/rules/{bank}"
    return f"/v1/rules/{bank}/rules{address({**query, 'order': asked.order, 'cursor': asked.cursor})}"
