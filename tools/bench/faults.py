"""Faults: the cost of an outage of a shared server for a job, and the effect of a kill on its answers."""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from mathrag_gate.stack import process
from mathrag_gate.stack.redis import find_free_port
from shared.settings import REPOSITORY, Model, Settings
from shared.storage.database import fill_names
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.faults.proxy import Proxy
from tests.real.elasticsearch import node
from tests.real.elasticsearch.node import laid_out
from tests.real.llama_server import installed
from tools.bench import Row, Rows, benchmark, in_turn
from tools.bench.stack import ENDED, JUDGED, Stack, seconds_of, start_stack
from tools.bench.staging import ROLES, BareDevice, Sample, has_done, kill, prompts_of_roles, samples_of

LOOK_S = 0.2
GONE_AT = 0.1
"""Share of the stage's known calls that are answered when the outage begins."""
MODELS = ("world-judge", "world-generator")
CHARGED = """
    SELECT c.role, a.outcome, count(DISTINCT a.id) AS attempts
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON a.call_id = c.id
    WHERE CAST(j.public_id AS text) = :job AND NOT a.accepted GROUP BY 1, 2 ORDER BY 1, 2"""
WAITS = """
    SELECT m.name, o.what, extract(epoch FROM now() - o.since) AS seconds
    FROM outages o JOIN models m ON m.id = o.model_id ORDER BY 1"""


class StoppableServer(NamedTuple):
    """A server that can be stopped and started."""

    settings: dict[str, object]
    """Settings of a stack that uses it."""
    stage: str
    leave: Callable[[], object]
    come: Callable[[], object]


@benchmark
def outages(samples: int = 1000, away: float = 50.0, server: str = "elasticsearch") -> Rows:
    """Measure an outage of a shared server during a job: lost samples, charged attempts, waiting time of calls.

    The server goes away in the middle of the stage that needs it, and comes back after `away` seconds. `elasticsearch`
    and `llama-server` are the real ones, killed and started again; there are two of the latter, for judge and
    generator, which the stack knows by their addresses. `ollama` is a test double behind a proxy that cuts all
    connections.
    """
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        chosen = opened.enter_context(SERVERS[server](folder))
        (folder / "mathrag.yaml").write_text(json.dumps(chosen.settings))
        running = opened.enter_context(start_stack(MATHRAG_CONFIG=str(folder / "mathrag.yaml")))
        running.upload_world(samples)
        job, waits = run_through_outage(running, chosen, away)
        report, audit = running.report(job), running.get(f"/v1/jobs/{job['id']}/audit")["violations"]
        yield {
            "job": job["state"], "seconds": seconds_of(job), "samples": job["request_counts"]["total"],
            "lost": job["request_counts"]["failed"], "loads": report["model_loads"], "violations": len(audit),
            "failures": report["failures"], "reason": job["reason"],
        }  # fmt: skip
        yield from (f"violation: {json.dumps(violation)}" for violation in audit)
        for row in running.rows(CHARGED, job=job["id"]):
            yield {"role": row.role, "outcome": row.outcome, "attempts charged": row.attempts}
        for what, seconds in waits.items():
            yield {"waited for": what, "seconds": seconds}


def run_through_outage(
    running: Stack, server: StoppableServer, away_s: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a job through an outage; return its document at its end, and the last wait seen for each server."""
    waits: dict[str, float] = {}
    job = running.submit(name="outage", **JUDGED)
    watch(running, job, waits, lambda found: share(found, server.stage) >= GONE_AT)
    server.leave()
    back = time.monotonic() + away_s
    watch(running, job, waits, lambda found: found["state"] in ENDED or time.monotonic() >= back)
    server.come()
    return watch(running, job, waits, lambda found: found["state"] in ENDED), waits


def watch(running: Stack, job: str, waits: dict[str, float], until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the job's document once `until` holds, and record waits in `waits`."""
    while not until(found := running.get(f"/v1/jobs/{job}")):
        for row in running.rows(WAITS):
            waits[f"{row.what} ({row.name})"] = float(row.seconds)
        time.sleep(LOOK_S)
    return dict(found)


def share(found: dict[str, Any], stage: str) -> float:
    """Return the share of the stage's calls that are answered."""
    if found["state"] in ENDED:
        raise SystemExit(f"the job ended before {stage} had begun: use more --samples")
    calls = found["stages"].get(stage)
    return calls["done"] / calls["total"] if calls else 0.0


@contextmanager
def elasticsearch(folder: Path) -> Iterator[StoppableServer]:
    """Run Elasticsearch for both indexes."""
    with node.running(laid_out(), folder / "elasticsearch") as found:
        yield StoppableServer({"retrieval": node.searched_on(found)}, "retrieve", found.kill, found.start)


@contextmanager
def llama_server(folder: Path) -> Iterator[StoppableServer]:
    """Run a llama-server for each shipped model, each at a fixed address."""
    program, ports = installed(folder).path, {name: find_free_port() for name in MODELS}
    running: list[Any] = []

    def come() -> None:
        for name, port in ports.items():
            file = REPOSITORY / "models" / f"{name}-f16.gguf"
            sizes = ("--parallel", "4", "--ctx-size", "4096", "--threads", "1")
            address = ("--alias", name, "--host", "127.0.0.1", "--port", str(port))
            command = [str(program), "--model", str(file), *address, *sizes, "--cache-ram", "0"]
            running.append(process.spawn(command, log=folder / f"{name}.log"))
        for port in ports.values():
            wait_healthy(port)

    def leave() -> None:
        while running:
            process.kill_group(child := running.pop())
            child.wait()

    models = {
        name: {"driver": "remote", "url": f"http://127.0.0.1:{port}/v1", "parallel": 4} for name, port in ports.items()
    }
    come()
    try:
        yield StoppableServer({"models": models}, "judge", leave, come)
    finally:
        leave()


def wait_healthy(port: int) -> None:
    """Return once the server has loaded its model."""
    while True:
        try:
            if httpx2.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(LOOK_S)


@contextmanager
def ollama(_: Path) -> Iterator[StoppableServer]:
    """Run Ollama's double with both models, behind a proxy."""
    double = Ollama()
    for name in MODELS:
        double.pull(f"{name}:latest")
    with serve_ollama(double) as server, Proxy(server.port) as proxy:
        same = {"driver": "ollama", "url": f"http://127.0.0.1:{proxy.port}", "parallel": 4, "footprint_mib": 400}
        settings = {"models": dict.fromkeys(MODELS, same), "device": {"budget_mib": 500}}
        yield StoppableServer(settings, "judge", proxy.part, proxy.heal)


SERVERS = {"elasticsearch": elasticsearch, "llama-server": llama_server, "ollama": ollama}


REPLIES = fill_names("""
    SELECT c.role, s.kind, s.ordinal, t.position, t.slot, encode(sha256(a.reply), 'hex')
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE j.public_id = :job AND c.role IN ('judge', 'generate')
    UNION ALL
    SELECT 'answer', s.kind, s.ordinal, 0, 0, o.answer
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN outcomes o ON o.sample_id = s.id
    WHERE j.public_id = :job AND s.kind = 'item'""")
KILLS = {"judge": "judge", "generate": "generator"}
"""The worker to kill in each stage."""
SHARES = (0.2, 0.5, 0.8)
"""Shares of the stage's calls after which it is killed."""

Replies = dict[tuple[Any, ...], str | None]
"""Hashes of replies by role and step; answers, unhashed, under the role `answer`."""


@benchmark
def determinism(data: Path | None = None, items: int = 300, rounds: int = 5, prompts: int = 300) -> Rows:
    """Measure the effect of a kill on a job's answers, and the cost of `deterministic: true`.

    For each setting a stack runs the same greedy job: undisturbed, undisturbed again, and with workers killed in both
    stages; replies and answers are compared with those of the first run. Then `prompts` of each role go to the model
    servers alone, with and without the setting. `data` has MATH's train.jsonl and test-dev.jsonl; without it the
    problem world is asked.
    """
    plain = Settings().models
    strict = {
        name: Model(**{**model.model_dump(exclude_unset=True), "deterministic": True}) for name, model in plain.items()
    }
    settings = {"default": plain, "deterministic": strict}
    sent: Sample = {}
    for name, models in settings.items():
        with start_stack(MATHRAG_MODELS=as_json(models), MATHRAG_WORKERS__CLAIM_TTL_S="5") as running:
            upload(running, data, items)
            first, expected, row = finish_run(running, submit(running, "first"))
            yield {"models": name, "run": "undisturbed", **row}
            again = finish_run(running, submit(running, "second"), expected)[2]
            yield {"models": name, "run": "undisturbed again", **again}
            disturbed = submit(running, "disturbed")
            for stage, worker in KILLS.items():
                for share_done in SHARES:
                    calls = int(share_done * first["calls_made"][stage])
                    watch(running, disturbed, {}, partial(has_done, stage, calls))
                    kill(running, worker)
            yield {"models": name, "run": "with 6 kills", **finish_run(running, disturbed, expected)[2]}
            sent = prompts_of_roles(asyncio.run(samples_of(running.database_url(), first["id"])))
    timed = {role: each[:prompts] for role, each in sent.items()}
    yield from in_turn({name: partial(time_answers, models, timed) for name, models in settings.items()}, rounds)


def as_json(models: Mapping[str, Model]) -> str:
    """Write models as the environment variable takes them."""
    return json.dumps({name: model.model_dump(mode="json", exclude_unset=True) for name, model in models.items()})


def upload(running: Stack, data: Path | None, items: int) -> None:
    """Upload corpus and dataset, both under the name "world"."""
    if data is None:
        running.upload_world(items)
        return
    running.upload("corpora", "world", [(data / "train.jsonl").read_bytes()])
    running.upload("datasets", "world", (data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)[:items])


def submit(running: Stack, name: str) -> str:
    """Submit a greedy job that reuses nothing; return its id."""
    params = {**JUDGED["params"], "judge": {"temperature": 0.0}}
    return running.submit(**{**JUDGED, "name": name, "params": params})


def finish_run(running: Stack, job: str, expected: Replies | None = None) -> tuple[dict[str, Any], Replies, Row]:
    """Wait for the job's end; return its report, its replies, and a row that compares them with `expected`."""
    ended = running.wait(job)
    report, replies = running.report(ended), {tuple(row[:-1]): row[-1] for row in running.rows(REPLIES, job=job)}
    expected = expected or replies
    row: dict[str, object] = {"seconds": seconds_of(ended), "calls lapsed": report["calls_lapsed"]}
    for role, what in (("judge", "judge replies"), ("generate", "generated texts"), ("answer", "answers")):
        keys = [key for key in expected.keys() | replies.keys() if key[0] == role]
        differing = sum(expected.get(key) != replies.get(key) for key in keys)
        row[f"{what} differ"] = f"{differing} of {len(keys)}"
    return report, replies, row


def time_answers(models: Mapping[str, Model], prompts: Sample) -> float:
    """Send all prompts to running servers; return the seconds without loads."""

    async def answer() -> float:
        device = BareDevice(models)
        seconds = [await device.answer(role, prompts[role]) for role in ROLES]
        await device.clear()
        return sum(seconds)

    return asyncio.run(answer())
