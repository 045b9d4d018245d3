"""Serves `/rules`: rule banks, and the rules of one."""

from fastapi import APIRouter, Response

from services.orchestrator.api.rules import RuleFilters
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import DocumentsQuery
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages import lines
from shared.pages.pages import format_query
from shared.storage import database
from shared.storage import rules as stored_rules

router = APIRouter()


class ShownRules(RuleFilters):
    """Filters as in the API, but sorted by confidence unless the bank's order is requested."""

    order: stored_rules.Order = "confidence"


@page(router, "/rules")
async def list_banks(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the rule banks, newest first."""
    query = visit.query(DocumentsQuery)
    found = await stored_rules.list_banks(deps.database, database.DEFAULT, query.cursor)
    return visit.show(
        "rules/list.html", title="Rule banks", json=f"/v1/rules{format_query(query.model_dump())}",
        found=as_json(found),
        first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/rules/{bank}")
async def show_bank(bank: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a bank and the rules that match the filters."""
    query = visit.query(ShownRules)
    async with deps.database.transaction() as connection:
        found = await stored_rules.load_details(connection, bank)
        rules = await stored_rules.list_rules(connection, found.name, query.make_selection(), query.limit, query.cursor)
    filters = query.model_dump(exclude={"cursor"}, exclude_defaults=True)
    drawn = [
        {**each, "body": lines.format_body(each), "head": lines.format_atom(each["head"])}
        for each in as_json(rules.data)
    ]
    return visit.show(
        "rules/one.html", title=bank, json=_link_json(bank, query, filters), bank=as_json(found), rules=drawn,
        query=filters,
        cursor=rules.next_cursor, first=query.cursor is not None, asked=query.model_dump(),
    )  # fmt: skip


def _link_json(bank: str, asked: ShownRules, query: dict[str, object]) -> str:
    """Return the API's address of the rules if they are filtered or paged, else that of the bank."""
    if not query and asked.cursor is None:
        return f"/v1/rules/{bank}"
    return f"/v1/rules/{bank}/rules{format_query({**query, 'order': asked.order, 'cursor': asked.cursor})}"
