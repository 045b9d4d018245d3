"""More and fewer workers, here and on another host; and a second guard, which is refused."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from mathrag.client import address
from mathrag_gate.stack.redis import find_free_port
from shared.storage.database import Database
from tests.running import JUDGED, RunningStack, ended, mathrag, running_stack

JOB: dict[str, Any] = {"reuse": "none", "params": JUDGED}
"""Every job computes everything anew."""
JUDGES = text("""
    SELECT DISTINCT a.worker FROM attempts a
    JOIN steps t ON t.call_id = a.call_id JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id
    WHERE CAST(j.public_id AS text) = :job AND a.worker LIKE 'judge@%'""")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("scaled")
    with running_stack(folder / "data", "--scale", "judge=3") as running:
        running.furnish(folder / "world", items=120)
        yield running


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("apart")
    with running_stack(folder / "data", "--scale", "judge=0", MATHRAG_DEVICE__ID="cpu:7") as running:
        running.furnish(folder / "world", items=30)
        yield running


def test_three_judges_share_the_work_and_load_nothing_more(scaled: RunningStack) -> None:
    job = scaled.submit("scaled", **JOB)
    scaled.assert_whole(job)
    assert len(judges(scaled, job)) > 1
    assert scaled.get(f"/v1/jobs/{job}/report")["model_loads"] == 2


def test_workers_come_and_go_while_a_job_runs(scaled: RunningStack) -> None:
    children = pids(scaled)
    longer = {"reuse": "none", "repeats": 4, "params": {**JOB["params"], "generate": {"temperature": 0.7}}}
    job = scaled.submit("while-it-runs", **longer)
    scaled.wait(job, lambda document: document["stages"].get("judge", {}).get("done", 0) > 30 or ended(document))
    assert scale(scaled, "judge=1", "generator=2") == {"judge": 1, "generator": 2}
    assert pids(scaled) == {
        **{name: pid for name, pid in children.items() if name not in ("judge-2", "judge-3")},
        "generator-2": scaled.pid("generator-2"),
    }
    before = judges(scaled, job)
    assert scale(scaled, "judge=3", "generator=1") == {"judge": 3, "generator": 1}
    assert not ended(scaled.get(f"/v1/jobs/{job}")), "the job was too short for this test"
    scaled.assert_whole(job)
    report = scaled.get(f"/v1/jobs/{job}/report")
    assert (report["calls_lapsed"], report["model_loads"]) == (0, 2)
    assert len(judges(scaled, job)) > len(before), "workers that were added took part"
    after = pids(scaled)
    assert list(after) == list(children)
    assert {name for name, pid in after.items() if pid != children[name]} == {"judge-2", "judge-3"}


def test_a_second_guard_ends_in_words_and_the_first_goes_on(scaled: RunningStack, tmp_path: Path) -> None:
    before = state(scaled)
    environment = {**scaled.addresses(), "MATHRAG_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "services.guard", "--port", str(find_free_port())]
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert second.returncode == 3
    said = second.stdout + second.stderr
    assert "device 'cpu:0' has a guard already" in said
    assert not [secret for secret in secrets(environment) if secret in said]
    assert state(scaled) == before
    scaled.assert_whole(scaled.submit("after-a-second-guard", **JOB))


def test_a_worker_on_another_host_needs_addresses_and_the_key(apart: RunningStack, tmp_path: Path) -> None:
    job = apart.submit("elsewhere", **JOB)
    with worker("judge", apart.addresses(), tmp_path) as process:
        apart.assert_whole(job)
        assert len(judges(apart, job)) == 1
        assert apart.get("/readyz")["ready"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not list(tmp_path.iterdir()), "it keeps nothing on disk"


def scale(stack: RunningStack, *numbers: str) -> dict[str, int]:
    command = mathrag("scale", *numbers, "--json", "--data-dir", str(stack.data_dir))
    assert command.returncode == 0, command.stderr
    workers: dict[str, int] = json.loads(command.stdout)["workers"]
    return workers


def pids(stack: RunningStack) -> dict[str, int | None]:
    now = address.read_state(stack.data_dir)
    assert now is not None
    return {child.name: child.pid for child in now.children}


def judges(stack: RunningStack, job: str) -> set[str]:
    async def found() -> set[str]:
        database = Database(stack.database_url(), pinned=False)
        async with database.transaction() as connection:
            rows = set((await connection.scalars(JUDGES, {"job": job})).all())
        await database.close()
        return rows

    return asyncio.run(found())


def state(stack: RunningStack) -> object:
    headers = {"authorization": f"Bearer {stack.addresses()['MATHRAG_SERVICE_KEY']}"}
    return httpx2.get(f"{stack.service_url('guard')}/state", headers=headers, trust_env=False).json()


def secrets(environment: dict[str, str]) -> list[str]:
    return [*re.findall(r":([^:/@]+)@", " ".join(environment.values())), environment["MATHRAG_SERVICE_KEY"]]


@contextmanager
def worker(service: str, addresses: dict[str, str], home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"services.{service}"], cwd=home, env={**addresses, "HOME": str(home)}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
