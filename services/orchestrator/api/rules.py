"""`/v1/rules`: banks of rules that are mined from graphs."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.deps import RequestDeps
from shared.contracts.api_keys import Scope
from shared.contracts.fields import WHOLE, Stored
from shared.contracts.rules import Rule
from shared.runtime.mining import Asked, mine, mining_of
from shared.storage import pages, rule_bank_details, rule_banks, rule_list
from shared.storage.rule_banks import RuleBank
from shared.storage.rule_list import Chosen, Order

router = APIRouter(prefix="/v1/rules", tags=["rules"])

LIMITS: dict[str, Any] = {
    "miner": "amie", "min_support": 2, "min_head_coverage": 0.01, "min_pca_confidence": 0.1, "max_atoms": 3,
    "min_head_facts": 100, "constants": False,
}  # fmt: skip
EXAMPLE: dict[str, Any] = {
    "id": 1, "name": "kinship", "state": "ready", "hash": "9f2c…", "graph": "kinship", "graph_hash": "41d0…",
    "miner": "amie", "limits": LIMITS, "relations": 25, "rules": 2452, "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11",
    "reason": None, "created_at": "2026-11-23T08:00:00Z", "sealed_at": "2026-11-23T08:00:09Z",
}  # fmt: skip
STARTED: dict[str, Any] = {
    **EXAMPLE, "state": "mining", "hash": None, "rules": 0, "sealed_at": None, "memory_mib": 512,
}  # fmt: skip
DETAILS: dict[str, Any] = {
    **EXAMPLE, "heads": [{"relation": "term1", "rules": 310, "best": 0.97}],
    "followed_by": [{
        "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "guided", "state": "completed", "pipeline": "rulerag",
        "created_at": "2026-11-23T08:00:00Z", "roles": ["rules"],
    }],
}  # fmt: skip
RULE: dict[str, Any] = {
    "head": ["term1", 0, 1], "body": [["term2", 1, 0]], "support": 38, "body_size": 40, "confidence": 0.95,
    "head_coverage": 0.2, "pca_confidence": 0.97, "pca_body_size": 39, "functional": 0,
}  # fmt: skip
REQUEST: dict[str, Any] = {"name": "kinship", "graph": "kinship", "mining": {"miner": "amie", "min_support": 2}}


class MiningRequest(BaseModel):
    """A bank as it is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": REQUEST})

    name: str
    graph: Stored
    mining: dict[str, Any]
    """The miner (`amie`, `tlogic` or `temporal-simple`) and its limits; what is left out has its default."""

    def asked(self) -> Asked:
        """The same, checked.

        Raises:
            Invalid: an unknown miner or limit, or a value out of range; the message names it.
        """
        return Asked(name=self.name, graph=self.graph, mining=mining_of(self.mining))


class RuleFilters(BaseModel):
    """Which rules of a bank a list holds, and which page of it."""

    model_config = ConfigDict(extra="forbid")

    head: Annotated[str | None, Field(description="Only rules that predict this relation.")] = None
    min_confidence: Annotated[float, Field(ge=0, le=1, description="PCA confidence where there is one.")] = 0.0
    min_support: Annotated[int, Field(ge=1, lt=1 << 63, description="How often body and head hold."), WHOLE] = 1
    order: Annotated[Order, Field(description="`confidence`: the most certain first.")] = "bank"
    limit: Annotated[int, Field(ge=1, le=pages.LARGEST), WHOLE] = pages.DEFAULT
    cursor: str | None = None

    def chosen(self) -> Chosen:
        """Without the page."""
        return Chosen(self.head, self.min_confidence, self.min_support, self.order)


class MinedBank(RuleBank, frozen=True, kw_only=True):
    """The bank, and what mining it takes."""

    memory_mib: int
    """At most, all processes of a judge worker together."""


@route(
    router, "POST", "", Scope.SUBMIT, "Mine rules",
    answers(MinedBank, {**STARTED, "state": "ready"}) | answers(MinedBank, STARTED, status=202),
    refuses=(404, 409, 413, 429), status_code=202,
)  # fmt: skip
async def create(request: MiningRequest, deps: RequestDeps) -> Response:
    """202: a job mines the bank, a sample for each relation; follow `job`, and use the bank once it is `ready`
    (docs/rules.md). The same again answers with the same bank, 200 once it is there; one that failed or was cancelled
    is mined again, and what was done is kept. More memory than `workers.mining_mib` is refused with 413.
    """
    started = await mine(deps.database, deps.settings, request.asked())
    deps.wake()
    answer = MinedBank(**msgspec.structs.asdict(started.bank), memory_mib=started.memory_mib)
    status = 200 if started.bank.state == "ready" else 202
    return json(answer, status, {"Location": f"/v1/rules/{started.bank.name}"})


@route(
    router, "GET", "", Scope.READ, "List rule banks",
    answers(pages.Page[RuleBank], {"data": [EXAMPLE], "next_cursor": None}),
)  # fmt: skip
async def listed(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await rule_banks.listed(deps.database, limit, cursor))


@route(
    router, "GET", "/{name}", Scope.READ, "Get a rule bank", answers(rule_bank_details.RuleBankDetails, DETAILS),
    refuses=(404,),
)  # fmt: skip
async def get(deps: RequestDeps, name: str) -> Response:
    """State, limits, hash, the job that mines it, the relations that its rules lead to, and the newest jobs that follow
    it.
    """
    async with deps.database.transaction() as connection:
        return json(await rule_bank_details.details(connection, name))


@route(
    router, "GET", "/{name}/rules", Scope.READ, "List a bank's rules",
    answers(pages.Page[Rule], {"data": [RULE], "next_cursor": None}), refuses=(404,),
)  # fmt: skip
async def rules(
    deps: RequestDeps,
    name: str,
    filters: Annotated[RuleFilters, Query()],
) -> Response:
    """In the bank's order, or the most certain first, page by page. An atom is a relation and two terms: a number is a
    variable, 0 and 1 are the head's; a text is an entity.
    """
    async with deps.database.transaction() as connection:
        return json(await rule_list.page(connection, name, filters.chosen(), filters.limit, filters.cursor))


@route(router, "DELETE", "/{name}", Scope.SUBMIT, "Delete a rule bank", answers(RuleBank, EXAMPLE), refuses=(404, 409))
async def delete(deps: RequestDeps, name: str) -> Response:
    """With its rules, for good. Not while it is mined (cancel its job first), nor while a live job follows it: 409."""
    return json(await rule_banks.delete(deps.database, name))
