"""A judge worker that is killed while it mines: the bank is whole, and little is mined twice."""

import random
import time

import pytest

from shared.settings import Workers
from tests.running import RunningStack, ended

pytestmark = pytest.mark.slow
RELATIONS = 12
MINING = {"miner": "amie", "min_head_facts": 1, "min_head_coverage": 0.0, "min_pca_confidence": 0.0}


def facts() -> bytes:
    chosen = random.Random(17)  # noqa: S311 - not for secrets
    lines = {
        f"e{chosen.randrange(150)}\tr{relation}\te{chosen.randrange(150)}\n"
        for relation in range(RELATIONS)
        for _ in range(1500)
    }
    return "".join(sorted(lines)).encode()


def mine(stack: RunningStack, name: str) -> str:
    body = {"name": name, "graph": "random", "mining": MINING}
    response = stack.api.post("/v1/rules", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["job"])


def test_a_killed_worker_loses_at_most_what_its_processes_had_in_work(stack: RunningStack) -> None:
    created = stack.api.post("/v1/graphs", params={"name": "random"}, content=facts(), timeout=600)
    assert created.status_code == 201, created.text
    job = mine(stack, "random")
    stack.wait(job, lambda found: 1 <= found["request_counts"]["completed"] < RELATIONS)
    stack.kill("judge")
    stack.assert_whole(job)
    report = stack.get(f"/v1/jobs/{job}/report")
    assert report["calls_lapsed"] <= Workers().miners
    assert report["calls_made"] == {"mine": RELATIONS}
    stack.wait(job, ended)
    while (bank := stack.get("/v1/rules/random"))["state"] == "mining":
        time.sleep(0.2)
    assert (bank["state"], bank["relations"]) == ("ready", RELATIONS)
