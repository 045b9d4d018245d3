"""Measure what an outage of a shared server costs a job: samples lost, attempts charged, and how long calls waited.

    .venv/bin/python -m bench.outages --samples 1000 --away 50 --server elasticsearch

The server goes away in the middle of the stage that needs it, and comes back after `--away` seconds. `elasticsearch`
and `llama-server` are the real ones, killed and started again; there are two of the latter, for judge and generator,
which the stack knows by their addresses. `ollama` is a test double behind a proxy that cuts all connections.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from sqlalchemy import text

from bench.floor import PARAMS, furnish
from bench.running import ENDED, Stack, seconds_of, stack
from mathrag.stack import process
from mathrag.stack.redis import find_free_port
from shared.settings import REPOSITORY
from shared.storage.database import Database
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.faults.proxy import Proxy
from tests.real.elasticsearch import node
from tests.real.elasticsearch.layout import laid_out
from tests.real.llama_server import installed

LOOK_S = 0.2
GONE_AT = 0.1
"""Share of the stage's known calls that are answered when the outage begins."""
MODELS = ("world-judge", "world-generator")
CHARGED = text("""
    SELECT c.role, a.outcome, count(DISTINCT a.id) AS attempts
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON a.call_id = c.id
    WHERE CAST(j.public_id AS text) = :job AND NOT a.accepted GROUP BY 1, 2 ORDER BY 1, 2""")
WAITS = text("""
    SELECT m.name, o.what, extract(epoch FROM now() - o.since) AS seconds
    FROM outages o JOIN models m ON m.id = o.model_id ORDER BY 1""")


class Server(NamedTuple):
    """A server that can be stopped and started."""

    settings: dict[str, object]
    """Settings of a stack that uses it."""
    stage: str
    leave: Callable[[], object]
    come: Callable[[], object]


def main() -> None:
    """Run one job with one outage in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--away", type=float, default=50.0, help="seconds")
    parser.add_argument("--server", choices=SERVERS, default="elasticsearch")
    options = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(SERVERS[options.server](folder))
        (folder / "mathrag.yaml").write_text(json.dumps(server.settings))
        running = opened.enter_context(stack(MATHRAG_CONFIG=str(folder / "mathrag.yaml")))
        furnish(running, options.samples)
        say(running, *run_through_outage(running, server, options.away))


def run_through_outage(running: Stack, server: Server, away_s: float) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a job through an outage; return its document at its end, and the last wait seen for each server."""
    waits: dict[str, float] = {}
    job = running.submit(name="outage", dataset="world", corpus="world", pipeline="mathrag-gate", params=PARAMS)
    watch(running, job, waits, lambda found: share(found, server.stage) >= GONE_AT)
    server.leave()
    back = time.monotonic() + away_s
    watch(running, job, waits, lambda found: found["state"] in ENDED or time.monotonic() >= back)
    server.come()
    print(f"back after {time.monotonic() - back + away_s:.1f} s", flush=True)
    return watch(running, job, waits, lambda found: found["state"] in ENDED), waits


def say(running: Stack, job: dict[str, Any], waits: dict[str, float]) -> None:
    """Print the job's losses, violations, charged attempts and waits."""
    counts, report = job["request_counts"], running.get(f"/v1/jobs/{job['id']}/report")
    audit = running.get(f"/v1/jobs/{job['id']}/audit")["violations"]
    print(
        f"{job['state']} after {seconds_of(job):.0f} s: {counts['failed']} of {counts['total']} samples lost", end="; "
    )
    print(f"{report['model_loads']} loads, {len(audit)} violations; failures: {report['failures']}; {job['reason']}")
    for violation in audit:
        print(f"violation: {json.dumps(violation)}")
    for row in rows(running, CHARGED, job=job["id"]):
        print(f"charged: {row.attempts} attempts of {row.role} with {row.outcome}")
    for what, seconds in waits.items():
        print(f"waited: {seconds:.0f} s for {what}")


def watch(running: Stack, job: str, waits: dict[str, float], until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the job's document once `until` holds; note waits in `waits` meanwhile."""
    while not until(found := running.get(f"/v1/jobs/{job}")):
        for row in rows(running, WAITS):
            waits[f"{row.what} ({row.name})"] = float(row.seconds)
        time.sleep(LOOK_S)
    return dict(found)


def share(found: dict[str, Any], stage: str) -> float:
    """Return the share of the stage's calls that are answered."""
    if found["state"] in ENDED:
        raise SystemExit(f"the job ended before {stage} had begun: use more --samples")
    calls = found["stages"].get(stage)
    return calls["done"] / calls["total"] if calls else 0.0


def rows(running: Stack, statement: Any, **values: Any) -> list[Any]:
    """Run a statement and return its rows."""

    async def read() -> list[Any]:
        database = Database(running.database_url(), pinned=False)
        async with database.statement() as connection:
            found = list(await connection.execute(statement, values))
        await database.close()
        return found

    return asyncio.run(read())


@contextmanager
def elasticsearch(folder: Path) -> Iterator[Server]:
    """Run Elasticsearch for both indexes."""
    with node.running(laid_out(), folder / "elasticsearch") as found:
        yield Server({"retrieval": node.searched_on(found)}, "retrieve", found.kill, found.start)


@contextmanager
def llama_server(folder: Path) -> Iterator[Server]:
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
        yield Server({"models": models}, "judge", leave, come)
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
def ollama(_: Path) -> Iterator[Server]:
    """Run Ollama's double with both models, behind a proxy."""
    double = Ollama()
    for name in MODELS:
        double.pull(f"{name}:latest")
    with serve_ollama(double) as server, Proxy(server.port) as proxy:
        same = {"driver": "ollama", "url": f"http://127.0.0.1:{proxy.port}", "parallel": 4, "footprint_mib": 400}
        settings = {"models": dict.fromkeys(MODELS, same), "device": {"budget_mib": 500}}
        yield Server(settings, "judge", proxy.part, proxy.heal)


SERVERS = {"elasticsearch": elasticsearch, "llama-server": llama_server, "ollama": ollama}

if __name__ == "__main__":
    main()
