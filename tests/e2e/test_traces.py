"""One job, followed through every process by what arrives at a collector."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from shared.storage.database import Database
from tests.doubles.collector import Collector, run_collector
from tests.running import RunningStack, ended, running_stack

ITEMS = 3


class Followed:
    def __init__(self, stack: RunningStack, collector: Collector, job: str) -> None:
        self.stack = stack
        self.collector = collector
        self.trace = job.replace("-", "")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("traces")
    told = {
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "MATHRAG_TELEMETRY__LOG_FORMAT": "json",
        "MATHRAG_TELEMETRY__LOG_LEVEL": "debug",
    }
    with (
        run_collector() as collector,
        running_stack(folder / "data", MATHRAG_TELEMETRY__OTLP_ENDPOINT=collector.url, **told) as stack,
    ):
        stack.furnish(folder / "world", items=ITEMS)
        job = stack.submit("followed", params={"gate": {"tau": 1.0, "min_pairs": 2}})
        stack.wait(job, ended)
        collector.wait_for("job mathrag-gate")
        collector.wait_for("sample mathrag-gate", ITEMS)
        collector.wait_for("chunk generate")
        collector.wait_for("POST /run", 2)
        yield Followed(stack, collector, job)


def test_the_request_leads_to_the_job(followed: Followed) -> None:
    (request,) = followed.collector.spans("POST /v1/jobs", "orchestrator")
    (job,) = followed.collector.spans("job mathrag-gate", "orchestrator")
    assert (job.trace, job.span) in request.links
    assert job.trace == followed.trace
    assert job.attributes["mathrag.job.state"] == "completed"


def test_samples_belong_to_the_job(followed: Followed) -> None:
    (job,) = followed.collector.spans("job mathrag-gate")
    samples = [*followed.collector.spans("sample mathrag-gate"), *followed.collector.spans("prepare mathrag-gate")]
    assert len(samples) == ITEMS + 1
    assert {(sample.trace, sample.parent) for sample in samples} == {(job.trace, job.span)}


def test_a_tick_leads_to_the_drain_and_the_drain_to_its_chunks(followed: Followed) -> None:
    ticks = {(span.trace, span.span) for span in followed.collector.spans("tick ")}
    drains = [span for span in followed.collector.spans("drain ") if span.links & ticks]
    drained = {(span.trace, span.span) for span in drains}
    assert drains
    assert any(chunk.links & drained for chunk in followed.collector.spans("chunk "))
    assert not any(drain.parent for drain in drains)


@pytest.mark.parametrize("role", ["retrieve", "judge", "generate", "grade"])
def test_a_chunk_is_linked_to_the_samples_it_serves(followed: Followed, role: str) -> None:
    samples = [*followed.collector.spans("sample mathrag-gate"), *followed.collector.spans("prepare mathrag-gate")]
    known = {(sample.trace, sample.span) for sample in samples}
    chunks = followed.collector.spans(f"chunk {role}")
    assert chunks
    assert all(chunk.links & known for chunk in chunks)
    assert not any(chunk.parent for chunk in chunks)


@pytest.mark.parametrize(("role", "model"), [("judge", "world-judge"), ("generate", "world-generator")])
def test_guard_and_model_calls_are_inside_their_chunk(followed: Followed, role: str, model: str) -> None:
    chunks = {chunk.trace: chunk for chunk in followed.collector.spans(f"chunk {role}")}
    runs = {run.span: run for run in followed.collector.spans("POST /run", "guard") if run.trace in chunks}
    calls = [call for call in followed.collector.spans(f"chat {model}", "guard") if call.parent in runs]
    assert calls
    for call in calls:
        run = runs[call.parent]
        assert run.parent == chunks[call.trace].span
        assert int(str(call.attributes["gen_ai.usage.input_tokens"])) > 0
        assert call.attributes["openinference.span.kind"] == "LLM"
        assert not {"input.value", "gen_ai.input.messages"} & call.attributes.keys()


def test_the_search_is_inside_its_chunk(followed: Followed) -> None:
    chunks = {chunk.trace: chunk.span for chunk in followed.collector.spans("chunk retrieve")}
    served = [span for span in followed.collector.spans("POST /search", "retriever") if span.trace in chunks]
    found = [span for span in followed.collector.spans("retrieve") if span.trace in chunks]
    assert served
    assert found
    assert all(span.parent == chunks[span.trace] for span in (*served, *found))
    assert "retrieval.documents.0.document.id" in found[0].attributes


def test_flips_and_loads_have_their_cause(followed: Followed) -> None:
    flips = {flip.trace: flip for flip in followed.collector.spans("flip wanted", "guard")}
    assert {flip.attributes["mathrag.cause"] for flip in flips.values()} == {"first", "drained"}
    loads = followed.collector.spans("load world-", "guard")
    assert {load.name for load in loads} == {"load world-judge", "load world-generator"}
    assert all(load.trace in flips for load in loads)


def test_attempts_keep_the_trace_of_their_chunk(followed: Followed) -> None:
    chunks = {chunk.trace for chunk in followed.collector.spans("chunk ")}
    kept = asyncio.run(_traces(followed.stack.database_url()))
    assert kept
    assert kept <= chunks


def test_log_lines_name_the_same_trace(followed: Followed) -> None:
    chunks = {chunk.trace for chunk in followed.collector.spans("chunk generate")}
    told = [line for line in _lines(followed, "generator") if line.get("trace_id") in chunks]
    assert told
    assert {line["service"] for line in told} == {"generate"}
    (accepted,) = [line for line in _lines(followed, "orchestrator") if line["event"] == "job accepted"]
    (request,) = followed.collector.spans("POST /v1/jobs", "orchestrator")
    assert (str(accepted["job_id"]).replace("-", ""), accepted["trace_id"]) == (followed.trace, request.trace)


def test_what_machines_poll_leaves_no_spans(followed: Followed) -> None:
    assert not followed.collector.spans("GET /healthz")
    assert {span.schema for span in followed.collector.spans("chunk ")} == {"https://opentelemetry.io/schemas/1.44.0"}


async def _traces(url: str) -> set[str]:
    database = Database(url, pinned=False)
    async with database.transaction() as connection:
        found = await connection.execute(text("SELECT DISTINCT trace_id FROM attempts"))
        traces = {str(trace) for trace in found.scalars()}
    await database.close()
    return traces


def _lines(followed: Followed, service: str) -> list[dict[str, object]]:
    log: Path = followed.stack.data_dir / "logs" / f"{service}.log"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.startswith("{")]
