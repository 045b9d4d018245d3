"""Serves `/v1/rules` as files: imports a bank that another tool or installation made, and exports one."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.rules import EXAMPLE, RULE
from services.orchestrator.api.uploads import BATCH, SOURCE, spool
from services.orchestrator.deps import RequestDeps
from shared.calls import StoredMining
from shared.errors import Conflict, Invalid
from shared.ingest import amie, rule_files
from shared.ingest.rule_files import RuleFileLimits
from shared.replies import Rule
from shared.settings import Limits
from shared.shapes import Scope
from shared.storage import graphs
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from shared.storage.graphs import count_relations
from shared.storage.rules import ImportOrigin, RuleBank

router = APIRouter(prefix="/v1/rules", tags=["rules"])

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
IMPORTED: dict[str, Any] = {**EXAMPLE, "graph": None, "graph_hash": None, "limits": {}, "relations": None, "job": None}
EXPORTED = answers(Rule, RULE, media="application/x-ndjson")
EXPORTED[200]["content"]["text/tab-separated-values"] = {"schema": {"type": "string"}, "example": AMIE_LINE}


@route(
    router, "POST", "/import", Scope.SUBMIT, "Import a rule bank",
    answers(RuleBank, IMPORTED) | answers(RuleBank, IMPORTED, status=201),
    refuses=(404, 409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def import_bank(
    request: Request,
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["kinship"])],
    format: Annotated[  # noqa: A002
        Literal["auto", "amie", "json"], Query(description="Format of the file; `auto` takes either.")
    ] = "auto",
    graph: Annotated[
        str | None, Query(description="Graph of the rules; rules with relations that it lacks are refused.")
    ] = None,
) -> Response:
    """Imports a rule bank. The body is AMIE's TSV or an exported bank, compressed with gzip or not
    (docs/how-to/rules.md).

    Answers 201, or 200 if the bank exists with the same rules. A rule that cannot be used rejects the whole file.
    """
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise Invalid("the body is a form, not a file", hint="send the file itself: curl --data-binary @FILE")
    relations = None if graph is None else await _load_relations(deps.database, graph)
    limits = deps.settings.limits
    async with spool(request, limits) as file:
        incoming = await to_thread.run_sync(rule_files.read, file, SOURCE, _read_limits(limits))
        found = "amie" if incoming.header is None else "json"
        if format not in ("auto", found):
            raise Invalid(f"`format`: the file is {found}, not {format}", hint="leave `format` out")
        rules = incoming.rules if relations is None else rule_files.only_known(incoming.rules, relations, graph or "")
        async with aclosing(_read_batches(rules)) as batches:
            stored, new = await stored_rules.create_imported(
                deps.database, name, _make_origin(incoming.header), batches
            )
    return json(stored, 201 if new else 200, {"Location": f"/v1/rules/{name}"})


async def _load_relations(database: Database, graph: str) -> frozenset[str]:
    found = await graphs.get(database, graph)
    async with database.transaction() as connection:
        return frozenset(name for name, _ in await count_relations(connection, found.id))


def _read_limits(limits: Limits) -> RuleFileLimits:
    """Return the operator's limits where they are narrower than those of rule files."""
    own = RuleFileLimits()
    return RuleFileLimits(
        unpacked_bytes=min(limits.decompressed_bytes, own.unpacked_bytes),
        line_bytes=min(limits.line_bytes, own.line_bytes),
        rules=min(limits.upload_rows, own.rules),
    )


def _make_origin(header: rule_files.Header | None) -> ImportOrigin:
    if header is None:
        return ImportOrigin("amie")
    return ImportOrigin(header.miner, header.graph_hash, header.limits, header.hash)


async def _read_batches(rules: Iterator[Rule]) -> AsyncGenerator[list[Rule], None]:
    while batch := await to_thread.run_sync(lambda: list(islice(rules, BATCH))):
        yield batch


@route(router, "GET", "/{name}/export", Scope.READ, "Export a rule bank", EXPORTED, refuses=(404, 409, 422))
async def export(
    name: str,
    deps: RequestDeps,
    format: Annotated[  # noqa: A002
        Literal["amie", "json"], Query(description="Format of the export; `json` has everything that an import needs.")
    ] = "json",
) -> Response:
    """Exports all rules in the bank's order. `json` has one line that describes the bank, then one rule per line;
    importing it gives a bank with the same hash. `amie` has the columns of AMIE's TSV, for rules with AMIE's figures
    (docs/how-to/rules.md).
    """
    async with deps.database.transaction() as connection:
        found = await stored_rules.get_bank(connection, name)
    if found.hash is None:
        raise Conflict(f"rule bank {name!r} is {found.state}, so it has no rules yet", hint="wait until it is ready")
    if format == "json":
        return StreamingResponse(_stream_json(deps.database, found), media_type="application/x-ndjson")
    await _check(deps.database, found)
    return StreamingResponse(_stream_amie(deps.database, found), media_type="text/tab-separated-values")


async def _check(database: Database, found: RuleBank) -> None:
    """Refuse what AMIE's columns cannot hold before the answer begins."""
    async for batch in stored_rules.read_rules(database, found):
        for rule in batch:
            amie.check(rule)


async def _stream_amie(database: Database, found: RuleBank) -> AsyncIterator[bytes]:
    async for batch in stored_rules.read_rules(database, found):
        yield "".join(f"{amie.line(rule)}\n" for rule in batch).encode()


async def _stream_json(database: Database, found: RuleBank) -> AsyncIterator[bytes]:
    header = rule_files.Header(
        format=rule_files.FORMAT, version=1, hash=found.hash or "", miner=found.miner, rules=found.rules,
        graph_hash=found.graph_hash, limits=msgspec.convert(found.limits, StoredMining) if found.limits else None,
    )  # fmt: skip
    yield rule_files.format_line(header)
    async for batch in stored_rules.read_rules(database, found):
        yield b"".join(map(rule_files.format_line, batch))
