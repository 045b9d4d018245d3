"""Serves `/v1/rules`: banks that are mined, and files of rules."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Conflict, Invalid
from services.orchestrator.access.identity import RequestCaller
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import Limit, answers, json, route
from services.orchestrator.api.uploads import SOURCE, get_media_type, read_in_thread, spool
from services.orchestrator.deps import RequestDeps
from shared.calls import StoredMining
from shared.fields import WHOLE, Stored
from shared.ingest import amie, rule_files
from shared.ingest.rule_files import RuleFileLimits
from shared.replies import Rule
from shared.runtime.mining import BankRequest, mine, parse_mining
from shared.shapes import Scope
from shared.storage import database, graphs
from shared.storage.graphs import count_relations
from shared.storage.rules import (
    ImportOrigin,
    Order,
    RuleBank,
    RuleBankDetails,
    RuleSelection,
    create_imported,
    get_bank,
    list_banks,
    list_rules,
    load_details,
    read_rules,
)
from shared.storage.rules import delete as delete_bank

router = APIRouter(prefix="/v1/rules", tags=["rules"])


class MiningRequest(BaseModel):
    """A rule bank to mine."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("MiningRequest")},
    )

    name: str
    """Name of the new rule bank."""
    graph: Stored
    """Graph to mine."""
    mining: dict[str, Any]
    """Miner (`amie` or `tlogic`) and its limits; limits that you leave out have their defaults."""

    def to_bank_request(self, submitted_by: str | None) -> BankRequest:
        """Return the request after checking it.

        Raises:
            Invalid: the miner or a limit is unknown, or a value is out of range; the message names it.
        """
        mining = parse_mining(self.mining)
        return BankRequest(name=self.name, graph=self.graph, mining=mining, submitted_by=submitted_by)


class RuleFilters(BaseModel):
    """Which rules of a bank to list, and which page of them."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    head: Annotated[str | None, Field(description="Only rules that predict this relation.")] = None
    min_confidence: Annotated[
        float, Field(ge=0, le=1, description="Lowest confidence to list; PCA confidence for rules that have one.")
    ] = 0.0
    min_support: Annotated[
        int,
        Field(ge=1, lt=1 << 63, description="Lowest support to list: number of times that body and head both hold."),
        WHOLE,
    ] = 1
    order: Annotated[Order, Field(description="Order of the list; `confidence` puts the most certain rules first.")] = (
        "bank"
    )
    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    """Upper bound of the rows on a page."""
    cursor: str | None = None
    """The `next_cursor` of the previous page; without it, the first page."""

    def make_selection(self) -> RuleSelection:
        """Return the filters without the page."""
        return RuleSelection(self.head, self.min_confidence, self.min_support, self.order)


class MinedBank(RuleBank, frozen=True, kw_only=True):
    """The rule bank, and the memory that its mining needs."""

    memory_mib: int
    """Upper bound of the memory of all processes of a judge worker, in MiB."""


@route(
    router, "POST", "", Scope.SUBMIT, "Mine rules",
    answers(MinedBank) | answers(MinedBank, make_example(MinedBank, state="mining"), status=202),
    refuses=(404, 409, 413, 429), status_code=202,
)  # fmt: skip
async def create(request: MiningRequest, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Starts a job that mines the bank, with one sample per relation. Follow `job`, and use the bank once it is
    `ready` (docs/how-to/knowledge-graphs.md#mine-rules).

    The same request answers with the same bank, and with 200 once the bank is ready. If the mining failed or was
    cancelled, the request continues it. A request that needs more memory than `workers.mining_mib` is refused with
    413.
    """
    async with deps.database.in_project_of(database.Origins(graphs=[request.graph])):
        started = await mine(deps.database, deps.settings, request.to_bank_request(caller.name))
    deps.wake()
    answer = MinedBank(**msgspec.structs.asdict(started.bank), memory_mib=started.memory_mib)
    status = 200 if started.bank.state == "ready" else 202
    return json(answer, status, {"Location": f"/v1/rules/{started.bank.name}"})


@route(router, "GET", "", Scope.READ, "List rule banks", answers(database.Page[RuleBank]), name="listed")
async def list_rule_banks(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the rule banks, newest first."""
    return json(await list_banks(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a rule bank", answers(RuleBankDetails), refuses=(404,))
async def get(deps: RequestDeps, name: str) -> Response:
    """Returns the state, limits and hash of a bank, the job that mines it, the relations that its rules predict, and
    the newest jobs that use it.
    """
    async with deps.database.transaction() as connection:
        return json(await load_details(connection, name))


@route(router, "GET", "/{name}/rules", Scope.READ, "List a bank's rules", answers(database.Page[Rule]), refuses=(404,))
async def rules(deps: RequestDeps, name: str, filters: Annotated[RuleFilters, Query()]) -> Response:
    """Lists the rules in the bank's order, or the most certain first, page by page. An atom has a relation and two
    terms. A term is a variable (a number; 0 and 1 are those of the head) or an entity (a text).
    """
    async with deps.database.transaction() as connection:
        return json(await list_rules(connection, name, filters.make_selection(), filters.limit, filters.cursor))


@route(router, "DELETE", "/{name}", Scope.SUBMIT, "Delete a rule bank", answers(RuleBank), refuses=(404, 409))
async def delete(deps: RequestDeps, name: str) -> Response:
    """Deletes a bank with its rules, permanently. Answers 409 while the bank is mined (cancel its job first) or
    while a running job uses it.
    """
    return json(await delete_bank(deps.database, name))


# Serves `/v1/rules` as files: imports a bank that another tool or installation made, and exports one.

files_router = APIRouter(prefix="/v1/rules", tags=["rules"])

AMIE_LINE = "?b  term11  ?a   => ?a  term10  ?b\t0.192546584\t0.144859813\t0.183431953\t31\t214\t169\t?a\n"
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/tab-separated-values": {"schema": {"type": "string"}, "example": AMIE_LINE},
            "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"format":"mathrag-rules",…}\n'},
            "application/gzip": {"schema": {"type": "string", "format": "binary"}, "example": "…"},
        },
    }
}  # fmt: skip
IMPORTED = make_example(RuleBank, graph=None, graph_hash=None, limits={}, relations=None, job=None)
EXPORTED = answers(Rule, media="application/x-ndjson")
EXPORTED[200]["content"]["text/tab-separated-values"] = {"schema": {"type": "string"}, "example": AMIE_LINE}


@route(
    files_router, "POST", "/import", Scope.SUBMIT, "Import a rule bank",
    answers(RuleBank, IMPORTED) | answers(RuleBank, IMPORTED, status=201),
    refuses=(404, 409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def import_bank(
    request: Request,
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["kinship"])],
    format: Annotated[  # noqa: A002
        Literal["auto", "amie", "json"], Query(description="Format of the file; `auto` detects it.")
    ] = "auto",
    graph: Annotated[
        str | None, Query(description="Graph of the rules; rules with relations that it does not have are refused.")
    ] = None,
) -> Response:
    """Imports a rule bank. The body is AMIE's TSV or an exported bank, optionally compressed with gzip
    (docs/how-to/knowledge-graphs.md#mine-rules).

    Answers 201, or 200 if the bank exists with the same rules. An unusable rule rejects the whole file.
    """
    get_media_type(request)  # a form is refused before the body is read
    relations = None
    if graph is not None:
        known = await graphs.get(deps.database, graph)
        async with deps.database.transaction() as connection:
            relations = frozenset(name for name, _ in await count_relations(connection, known.id))
    # The operator's limits, where they are narrower than those of rule files.
    limits, own = deps.settings.limits, RuleFileLimits()
    narrowest = RuleFileLimits(
        unpacked_bytes=min(limits.decompressed_bytes, own.unpacked_bytes),
        line_bytes=min(limits.line_bytes, own.line_bytes),
        rules=min(limits.upload_rows, own.rules),
    )
    async with spool(request, limits) as file:
        incoming = await to_thread.run_sync(rule_files.read, file, SOURCE, narrowest)
        header = incoming.header
        found = "amie" if header is None else "json"
        if format not in ("auto", found):
            raise Invalid(f"`format`: the file is {found}, not {format}", hint="correct `format`, or leave it out")
        rules = incoming.rules if relations is None else rule_files.only_known(incoming.rules, relations, graph or "")
        origin = ImportOrigin("amie")
        if header is not None:
            origin = ImportOrigin(header.miner, header.graph_hash, header.limits, header.hash)
        async with aclosing(read_in_thread(rules)) as batches:
            stored, new = await create_imported(deps.database, name, origin, batches)
    return json(stored, 201 if new else 200, {"Location": f"/v1/rules/{name}"})


@route(files_router, "GET", "/{name}/export", Scope.READ, "Export a rule bank", EXPORTED, refuses=(404, 409, 422))
async def export(
    name: str,
    deps: RequestDeps,
    format: Annotated[  # noqa: A002
        Literal["amie", "json"], Query(description="Format of the export; `json` has everything that an import needs.")
    ] = "json",
) -> Response:
    """Exports all rules in the bank's order. `json` has one line that describes the bank, then one rule per line;
    importing it gives a bank with the same hash. `amie` has the columns of AMIE's TSV, for rules with AMIE's figures
    (docs/how-to/knowledge-graphs.md#mine-rules).
    """
    async with deps.database.transaction() as connection:
        found = await get_bank(connection, name)
    if found.hash is None:
        raise Conflict(f"rule bank {name!r} is {found.state}, so it has no rules yet", hint="wait until it is ready")
    if format == "amie":
        # Refuse what AMIE's columns cannot hold before the answer begins.
        async for batch in read_rules(deps.database, found):
            for rule in batch:
                amie.check(rule)
        lines = (
            "".join(f"{amie.format_line(rule)}\n" for rule in batch).encode()
            async for batch in read_rules(deps.database, found)
        )
        return StreamingResponse(lines, media_type="text/tab-separated-values")
    header = rule_files.Header(
        format=rule_files.FORMAT, version=1, hash=found.hash, miner=found.miner, rules=found.rules,
        graph_hash=found.graph_hash, limits=msgspec.convert(found.limits, StoredMining) if found.limits else None,
    )  # fmt: skip

    async def stream() -> AsyncIterator[bytes]:
        yield rule_files.format_line(header)
        async for batch in read_rules(deps.database, found):
            yield b"".join(map(rule_files.format_line, batch))

    return StreamingResponse(stream(), media_type="application/x-ndjson")
