"""A whole job on models of an Ollama server: the real stack, and for the server a double of its protocol.

It proves that the service speaks the protocol from submit to audit; a real server is not here.
"""

import time
from collections.abc import Iterator

import pytest

from shared.settings import Device, Model, Settings
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.running import DEADLINE_S, JUDGED, RunningStack, ended, mathrag, running_stack

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"


@pytest.fixture(scope="module")
def double() -> Ollama:
    made = Ollama()
    made.pull(JUDGE)
    made.pull(GENERATOR)
    return made


@pytest.fixture(scope="module")
def stack(double: Ollama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("ollama")
    with serve_ollama(double) as server:
        models = {
            tag: Model(driver="ollama", url=server.url, parallel=4, footprint_mib=400) for tag in (JUDGE, GENERATOR)
        }
        roles = {"judge": JUDGE, "generate": GENERATOR}
        settings = Settings(models=models, roles=roles, device=Device(budget_mib=500))  # type: ignore[arg-type]
        (folder / "mathrag.yaml").write_text(settings.model_dump_json(include={"models", "roles", "device"}))
        with running_stack(folder / "data", MATHRAG_CONFIG=str(folder / "mathrag.yaml")) as running:
            running.furnish(folder / "world", items=10)
            yield running
        assert double.runners == {}  # a stack that stops leaves nothing on the server


def test_the_papers_pipeline_takes_two_loads(stack: RunningStack, double: Ollama) -> None:
    job = stack.submit("staged", params=JUDGED)
    assert stack.wait(job, ended)["state"] == "completed"
    report = stack.get(f"/v1/jobs/{job}/report")
    assert double.loads == [JUDGE, GENERATOR]
    assert report["model_loads"] == 2
    assert report["parse_failures"] == 0
    audited = mathrag("audit", job, MATHRAG_URL=stack.url)
    assert audited.returncode == 0, audited.stdout


def test_a_sample_tells_which_manifest_answered(stack: RunningStack, double: Ollama) -> None:
    (job, *_) = stack.get("/v1/jobs")["data"]
    steps = stack.get(f"/v1/jobs/{job['id']}/samples/0")["steps"]
    digests = {step["role"]: step["digest"] for step in steps}
    assert (digests["judge"], digests["generate"]) == (double.pulled[JUDGE], double.pulled[GENERATOR])


def test_five_jobs_at_once_are_drained_model_by_model(stack: RunningStack, double: Ollama) -> None:
    before = len(double.loads)
    jobs = [stack.submit(f"many-{n}", repeats=2, params={"generate": {"temperature": 0.5 + n / 10}}) for n in range(5)]
    assert {stack.wait(job, ended)["state"] for job in jobs} == {"completed"}
    assert all(mathrag("audit", job, MATHRAG_URL=stack.url).returncode == 0 for job in jobs)
    loads = double.loads[before:]
    assert len(loads) <= 4
    assert all(first != second for first, second in zip(double.loads, double.loads[1:], strict=False))


def test_a_guard_that_is_killed_leaves_a_model_that_the_next_one_unloads(stack: RunningStack, double: Ollama) -> None:
    assert double.runners
    before = len(double.loads)
    stack.kill("guard")
    job = stack.submit("after-a-kill", params={"generate": {"temperature": 0.25}})
    assert stack.wait(job, ended)["state"] == "completed"
    assert mathrag("audit", job, MATHRAG_URL=stack.url).returncode == 0
    assert double.loads[before:] == [GENERATOR]


def test_a_drained_device_leaves_the_server_to_others(stack: RunningStack, double: Ollama) -> None:
    drained = mathrag("gpu", "drain", "cpu:0", "--json", MATHRAG_URL=stack.url)
    assert drained.returncode == 0, drained.stderr
    deadline = time.monotonic() + DEADLINE_S
    while double.runners:
        assert time.monotonic() < deadline, double.runners
        time.sleep(0.1)
    mathrag("gpu", "release", "cpu:0", MATHRAG_URL=stack.url)


def test_the_doctor_says_what_is_not_pulled(stack: RunningStack, double: Ollama) -> None:
    digest = double.pulled.pop(JUDGE)
    config = stack.data_dir.parent / "mathrag.yaml"
    found = mathrag("doctor", "--data-dir", str(stack.data_dir), MATHRAG_CONFIG=str(config))
    double.pulled[JUDGE] = digest
    assert f"ollama pull {JUDGE}" in found.stdout
    assert found.returncode == 1
