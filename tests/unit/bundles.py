"""Folders of `data/` as an export leaves them: a job whose questions and documents are whatever a test wants."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from services.orchestrator.api.examples import make_example
from shared import canonical
from shared.calls import Request
from shared.records import (
    CallRecord,
    EndLine,
    JobLine,
    JobRecord,
    NamedContent,
    SampleLine,
    SampleRecord,
    chain_records,
    genesis,
)
from shared.replies import Failure, FailureKind, Generated, Graded, Rated, Reply, Retrieved
from shared.samples import Candidate, Extraction, Outcome, SampleRow, Trace

JOB = make_example("JobView")
SAMPLE = make_example("SampleRow")
EXAMPLE = make_example("Report")

BEGAN = datetime(2026, 11, 21, 8, tzinfo=UTC)
MODEL = "ab" * 32
TEXT = ("A problem", "A solution: $1+1=2$.")
DOCUMENT = canonical.digest(list(TEXT)).hex()
REPORT: dict[str, Any] = {
    **EXAMPLE,
    "settings": {
        **EXAMPLE["settings"],
        "models": {
            "judge": {"name": "world-judge", "backend": "llama.cpp", "digest": "a2d1", "version": "1"},
            "generate": {"name": "world-generator", "backend": "llama.cpp", "digest": None, "version": "1"},
        },
    },
}


def folder(at: Path, samples: int = 2, report: Mapping[str, Any] | None = None, **row: Any) -> Path:
    """Write a job of so many samples into `at`; `row` has fields of all its rows."""
    at.mkdir(parents=True)
    told = {**REPORT, "request_counts": {**REPORT["request_counts"], "total": samples}, **(report or {})}
    job = {**JOB, "id": told["id"], "name": told["name"]}
    written = {"job.json": job, "report.json": told, "audit.json": {"clean": True, "violations": []}}
    for name, value in written.items():
        (at / name).write_bytes(msgspec.json.encode(value))
    rows = [_row(place, row) for place in range(samples)]
    (at / "results.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    (at / "provenance.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, _lines(rows))) + b"\n")
    return at


def serve_file(at: Path, request: httpx2.Request) -> httpx2.Response:
    """Answer a request for a file of the job's export from its folder."""
    part = request.url.path.removeprefix("/v1/jobs/").partition("/")[2]
    csv = part == "results" and request.url.params["format"] == "csv"
    file = {"": "job.json", "results": "results.jsonl", "provenance": "provenance.jsonl"}.get(part, f"{part}.json")
    return httpx2.Response(200, content=b"index\r\n0\r\n" if csv else (at / file).read_bytes())


def _row(place: int, given: Mapping[str, Any]) -> SampleRow:
    fields: dict[str, Any] = {
        **SAMPLE, "index": place, "context": (DOCUMENT,), "ended_at": BEGAN + timedelta(minutes=1), **given
    }  # fmt: skip
    return SampleRow(**fields)


def _lines(rows: list[SampleRow]) -> list[JobLine | SampleLine | EndLine]:
    job = JobRecord(
        job="6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", pipeline="mathrag-gate", pipeline_hash="77ab",
        params=msgspec.Raw(b"{}"), dataset=NamedContent(name="math-500", hash="d0"),
        corpus=NamedContent(name="math", hash="c0"),
        pins={"judge": {"model_id": 1, "hash": MODEL}}, repeats=1, reuse="all", total=len(rows),
        code={"commit": "810c6c7", "version": "0.1.0", "indexes": {"dense": {"signature": "5i", "file_hash": "f1"}}},
        prepared=None, preparation=None, created_at=BEGAN,
    )  # fmt: skip
    samples = [_sample(row) for row in rows]
    links = list(chain_records([record for record, _ in samples], 0, genesis(job)))
    first = JobLine(hash=genesis(job).hex(), record=canonical.encode(job).decode(), texts={})
    told = [
        SampleLine(
            sequence=link.sequence, hash=link.hash.hex(), previous=link.previous.hex(), record=link.record.decode(),
            texts=texts,
        )
        for link, (_, texts) in zip(links, samples, strict=True)
    ]  # fmt: skip
    return [first, *told, EndLine(records=len(rows), chain=(links[-1].hash if links else genesis(job)).hex())]


def _sample(row: SampleRow) -> tuple[SampleRecord, dict[str, str]]:
    texts = {DOCUMENT: canonical.encode(list(TEXT)).decode()}
    replies: list[tuple[str, Reply]] = [
        ("retrieve", Retrieved(hits=())), ("judge", Rated(rating=4, text="[[4]]")),
        ("judge", Failure(kind=FailureKind.UNPARSED, detail=row.question)),
        ("generate", Generated(text=f"I say {row.answer}.")), ("grade", Graded(math_verify=True, strict=False)),
    ]  # fmt: skip
    calls = tuple(_call(place, role, reply, texts) for place, (role, reply) in enumerate(replies))
    other = Candidate(document="0" * 64, rank=2, fused=0.5, quality=0.25)
    found = Candidate(document=DOCUMENT, rank=1, dense_rank=3, fused=0.25, quality=0.75, score=0.9)
    outcome = Outcome(
        answer=row.answer, extraction=Extraction.OK, context=(DOCUMENT,), trace=Trace(candidates=(found, other))
    )  # fmt: skip
    record = SampleRecord(
        index=row.index, repeat=row.repeat, item="1e", state=row.state, ended_at=row.ended_at or BEGAN,
        outcome=None if row.failure else _kept(canonical.encode(outcome), texts), calls=calls,
    )  # fmt: skip
    return record, texts


def _call(place: int, role: str, reply: Reply, texts: dict[str, str]) -> CallRecord:
    request = Request(role=role, model=MODEL, draw=place)
    began = BEGAN + timedelta(seconds=place)
    return CallRecord(
        interruptions=(), position=place, slot=0, created=role != "retrieve",
        key=_kept(canonical.encode(request), texts), queued_at=BEGAN, outcome="value",
        reply=_kept(canonical.encode(reply), texts), device="cpu:0", epoch=12, started_at=began,
        ended_at=began + timedelta(seconds=0.5), prompt_hash="cafe" * 16, completion_tokens=7,
    )  # fmt: skip


def _kept(body: bytes, texts: dict[str, str]) -> str:
    name = hashlib.sha256(body).hexdigest()
    texts[name] = body.decode()
    return name
