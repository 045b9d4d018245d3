"""A job as W3C PROV-JSON: the job in the document, every sample in a bundle of its own, named by its record's hash.

Entities are what is named by a hash (items, documents, replies, outcomes), activities are calls, samples and the job,
agents are the pipeline, the models, and the code that accepted the job. A bundle repeats what it shares with others
under the same name, so each can be read alone, and the document can be written without ever being whole in memory.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

import msgspec

from shared.contracts.records import CallRecord, JobRecord
from shared.contracts.requests import Request
from shared.contracts.samples import Outcome
from shared.provenance import export
from shared.provenance.texts import documents_in
from shared.storage.database import Database

KINDS = (
    "job", "sample", "call", "item", "document", "reply", "outcome", "decision", "dataset", "corpus", "record", "model",
    "pipeline", "code",
)  # fmt: skip
PREFIXES = {kind: f"urn:mathrag:{kind}:" for kind in KINDS} | {"mathrag": "urn:mathrag:term:"}
_REQUEST = msgspec.json.Decoder(Request)
_OUTCOME = msgspec.json.Decoder(Outcome)
_ENCODER = msgspec.json.Encoder(order="deterministic")

Attributes = dict[str, Any]


class Statements:
    """PROV statements by type; saying the same twice changes nothing, and what is not known is left out."""

    def __init__(self) -> None:
        self.by_type: defaultdict[str, dict[str, Attributes]] = defaultdict(dict)

    def describe(self, type_: str, name: str, /, **attributes: object) -> str:
        """An entity, activity or agent; attributes become `mathrag:` terms, times PROV's own."""
        self.by_type[type_][name] = {
            key if ":" in key else f"mathrag:{key}": _value(value)
            for key, value in attributes.items()
            if value is not None
        }
        return name

    def activity(self, name: str, start: datetime | None, end: datetime | None, /, **attributes: object) -> str:
        """Something that took time."""
        return self.describe("activity", name, **{"prov:startTime": start, "prov:endTime": end}, **attributes)

    def relate(self, type_: str, **roles: str) -> None:
        """A relation between two things, such as `used(activity, entity)`."""
        name = f"_:{type_}{len(self.by_type[type_])}"
        statement = {f"prov:{role}": name for role, name in roles.items()}
        if statement not in self.by_type[type_].values():
            self.by_type[type_][name] = statement


def _value(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


async def document(database: Database, exported: export.JobExport) -> AsyncIterator[bytes]:
    """The PROV-JSON document in pieces: the job, then one bundle after the other."""
    job = exported.record
    yield _ENCODER.encode({"prefix": PREFIXES, **_job(exported).by_type})[:-1] + b',"bundle":{'
    separator = b""
    async for sample in export.samples(database, exported):
        name = f"record:{sample.link.hash.hex()}"
        yield separator + _ENCODER.encode(name) + b":" + _ENCODER.encode(_sample(job, sample).by_type)
        separator = b",\n"
    yield b"}}\n"


def _job(exported: export.JobExport) -> Statements:
    said, record = Statements(), exported.record
    job = said.activity(f"job:{record.job}", record.created_at, exported.ended_at, chain=exported.chain.hex())
    said.relate("used", activity=job, entity=said.describe("entity", f"dataset:{record.dataset.hash}"))
    if record.corpus is not None:
        said.relate("used", activity=job, entity=said.describe("entity", f"corpus:{record.corpus.hash}"))
    if record.prepared is not None:
        decision = said.describe("entity", f"decision:{record.prepared}")
        said.relate("wasGeneratedBy", entity=decision, activity=job)
    agents = [_pipeline(said, record), said.describe("agent", f"code:{_code(record)}", **_kind("SoftwareAgent"))]
    agents += [_model(said, pin["hash"]) for pin in record.pins.values()]
    for agent in agents:
        said.relate("wasAssociatedWith", activity=job, agent=agent)
    return said


def _sample(job: JobRecord, sample: export.SampleExport) -> Statements:
    said, record = Statements(), sample.record
    name = f"{job.job}/{record.index}/{record.repeat}"
    activity = said.activity(f"sample:{name}", None, record.ended_at, state=record.state, failure=record.failure)
    item = said.describe("entity", f"item:{record.item}", custom_id=record.custom_id)
    said.relate("used", activity=activity, entity=item)
    said.relate("wasAssociatedWith", activity=activity, agent=_pipeline(said, job))
    replies = [reply for call in record.calls for reply in _call(said, sample, call)]
    for reply in replies:
        said.relate("used", activity=activity, entity=reply)
    if record.outcome is not None:
        outcome = said.describe("entity", f"outcome:{name}", sha256=record.outcome)
        said.relate("wasGeneratedBy", entity=outcome, activity=activity)
        for source in (item, *replies, *_context(said, sample)):
            said.relate("wasDerivedFrom", generatedEntity=outcome, usedEntity=source)
    return said


def _call(said: Statements, sample: export.SampleExport, call: CallRecord) -> Iterable[str]:
    """Say what the call did; its reply, where the sample consumed one."""
    request = _REQUEST.decode(sample.texts[call.key])
    activity = said.activity(
        f"call:{call.key}", call.started_at, call.ended_at, role=request.role, worker=call.worker, device=call.device,
        epoch=call.epoch, concurrency=call.concurrency, template=request.template or None,
    )  # fmt: skip
    said.relate("wasAssociatedWith", activity=activity, agent=_model(said, request.model))
    for hash_ in sorted(documents_in(request)):
        said.relate("used", activity=activity, entity=said.describe("entity", f"document:{hash_}"))
    if "question" in request.values or request.role == "grade":
        said.relate("used", activity=activity, entity=f"item:{sample.record.item}")
    if call.reply is not None:
        reply = said.describe("entity", f"reply:{call.key}", sha256=call.reply, outcome=call.outcome)
        said.relate("wasGeneratedBy", entity=reply, activity=activity)
        yield reply


def _context(said: Statements, sample: export.SampleExport) -> list[str]:
    outcome = _OUTCOME.decode(sample.texts[sample.record.outcome or ""])
    return [said.describe("entity", f"document:{hash_}") for hash_ in outcome.context]


def _pipeline(said: Statements, job: JobRecord) -> str:
    return said.describe("agent", f"pipeline:{job.pipeline_hash}", name=job.pipeline, **_kind("SoftwareAgent"))


def _model(said: Statements, hash_: str) -> str:
    return said.describe("agent", f"model:{hash_}", **_kind("SoftwareAgent"))


def _kind(name: str) -> Attributes:
    return {"prov:type": {"$": f"prov:{name}", "type": "prov:QUALIFIED_NAME"}}


def _code(job: JobRecord) -> str:
    return str(job.code.get("commit") or job.code.get("version"))
