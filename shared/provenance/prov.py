"""Export a job as W3C PROV-JSON: the job in the document, every sample in its own bundle, named by its record's hash.

Entities are things named by a hash (items, documents, replies, outcomes), activities are calls, samples and the job,
agents are the pipeline, the models and the code that accepted the job. A bundle repeats what it shares with others
under the same names, so that each can be read alone and the document never has to be in memory as a whole.
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
from shared.provenance.texts import list_prompt_documents
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
    """PROV statements by type; repeated statements are stored once, unknown attributes are left out."""

    def __init__(self) -> None:
        self.by_type: defaultdict[str, dict[str, Attributes]] = defaultdict(dict)

    def describe(self, type_: str, name: str, /, **attributes: object) -> str:
        """Describe an entity, activity or agent; attributes become `mathrag:` terms, times PROV's own."""
        self.by_type[type_][name] = {
            key if ":" in key else f"mathrag:{key}": _value(value)
            for key, value in attributes.items()
            if value is not None
        }
        return name

    def activity(self, name: str, start: datetime | None, end: datetime | None, /, **attributes: object) -> str:
        """Describe an activity with its start and end."""
        return self.describe("activity", name, **{"prov:startTime": start, "prov:endTime": end}, **attributes)

    def relate(self, type_: str, **roles: str) -> None:
        """State a relation between two things, such as `used(activity, entity)`."""
        name = f"_:{type_}{len(self.by_type[type_])}"
        statement = {f"prov:{role}": name for role, name in roles.items()}
        if statement not in self.by_type[type_].values():
            self.by_type[type_][name] = statement


def _value(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


async def export_document(database: Database, exported: export.JobExport) -> AsyncIterator[bytes]:
    """Yield the PROV-JSON document in pieces: the job, then the bundles one by one."""
    job = exported.record
    yield _ENCODER.encode({"prefix": PREFIXES, **_state_job(exported).by_type})[:-1] + b',"bundle":{'
    separator = b""
    async for sample in export.read_samples(database, exported):
        name = f"record:{sample.link.hash.hex()}"
        yield separator + _ENCODER.encode(name) + b":" + _ENCODER.encode(_state_sample(job, sample).by_type)
        separator = b",\n"
    yield b"}}\n"


def _state_job(exported: export.JobExport) -> Statements:
    said, record = Statements(), exported.record
    job = said.activity(f"job:{record.job}", record.created_at, exported.ended_at, chain=exported.chain.hex())
    said.relate("used", activity=job, entity=said.describe("entity", f"dataset:{record.dataset.hash}"))
    if record.corpus is not None:
        said.relate("used", activity=job, entity=said.describe("entity", f"corpus:{record.corpus.hash}"))
    if record.prepared is not None:
        decision = said.describe("entity", f"decision:{record.prepared}")
        said.relate("wasGeneratedBy", entity=decision, activity=job)
    agents = [
        _state_pipeline(said, record),
        said.describe("agent", f"code:{_code_version(record)}", **_type_attribute("SoftwareAgent")),
    ]
    agents += [_state_model(said, pin["hash"]) for pin in record.pins.values()]
    for agent in agents:
        said.relate("wasAssociatedWith", activity=job, agent=agent)
    return said


def _state_sample(job: JobRecord, sample: export.SampleExport) -> Statements:
    said, record = Statements(), sample.record
    name = f"{job.job}/{record.index}/{record.repeat}"
    activity = said.activity(f"sample:{name}", None, record.ended_at, state=record.state, failure=record.failure)
    item = said.describe("entity", f"item:{record.item}", custom_id=record.custom_id)
    said.relate("used", activity=activity, entity=item)
    said.relate("wasAssociatedWith", activity=activity, agent=_state_pipeline(said, job))
    replies = [reply for call in record.calls for reply in _state_call(said, sample, call)]
    for reply in replies:
        said.relate("used", activity=activity, entity=reply)
    if record.outcome is not None:
        outcome = said.describe("entity", f"outcome:{name}", sha256=record.outcome)
        said.relate("wasGeneratedBy", entity=outcome, activity=activity)
        for source in (item, *replies, *_state_context(said, sample)):
            said.relate("wasDerivedFrom", generatedEntity=outcome, usedEntity=source)
    return said


def _state_call(said: Statements, sample: export.SampleExport, call: CallRecord) -> Iterable[str]:
    """State what the call did and yield its reply if the sample consumed one."""
    request = _REQUEST.decode(sample.texts[call.key])
    activity = said.activity(
        f"call:{call.key}", call.started_at, call.ended_at, role=request.role, worker=call.worker, device=call.device,
        epoch=call.epoch, concurrency=call.concurrency, template=request.template or None,
    )  # fmt: skip
    said.relate("wasAssociatedWith", activity=activity, agent=_state_model(said, request.model))
    for hash_ in sorted(list_prompt_documents(request)):
        said.relate("used", activity=activity, entity=said.describe("entity", f"document:{hash_}"))
    if "question" in request.values or request.role == "grade":
        said.relate("used", activity=activity, entity=f"item:{sample.record.item}")
    if call.reply is not None:
        reply = said.describe("entity", f"reply:{call.key}", sha256=call.reply, outcome=call.outcome)
        said.relate("wasGeneratedBy", entity=reply, activity=activity)
        yield reply


def _state_context(said: Statements, sample: export.SampleExport) -> list[str]:
    outcome = _OUTCOME.decode(sample.texts[sample.record.outcome or ""])
    return [said.describe("entity", f"document:{hash_}") for hash_ in outcome.context]


def _state_pipeline(said: Statements, job: JobRecord) -> str:
    return said.describe(
        "agent", f"pipeline:{job.pipeline_hash}", name=job.pipeline, **_type_attribute("SoftwareAgent")
    )


def _state_model(said: Statements, hash_: str) -> str:
    return said.describe("agent", f"model:{hash_}", **_type_attribute("SoftwareAgent"))


def _type_attribute(name: str) -> Attributes:
    return {"prov:type": {"$": f"prov:{name}", "type": "prov:QUALIFIED_NAME"}}


def _code_version(job: JobRecord) -> str:
    return str(job.code.get("commit") or job.code.get("version"))
