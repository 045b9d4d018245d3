"""The command line against the real stack: the doctor, a job on its way, and requests that curl sends."""

import json
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from mathrag.cli.output import Exit
from tests.running import RunningStack, ended, mathrag


@pytest.mark.smoke
def test_the_doctor_finds_a_stack_that_is_well(stack: RunningStack) -> None:
    found = mathrag("doctor", "--data-dir", str(stack.data_dir), "--json")
    assert found.returncode == Exit.DONE, found.stdout
    assert len(json.loads(found.stdout)["checks"]) > len(stack.get("/readyz")["checks"])


def test_the_doctor_works_when_the_api_does_not(stack: RunningStack) -> None:
    pid = next(child["pid"] for child in stack.status()["stack"]["children"] if child["name"] == "orchestrator")
    api = psutil.Process(pid)
    api.suspend()
    try:
        found = mathrag("doctor", "--data-dir", str(stack.data_dir), "--json")
    finally:
        api.resume()
    wrong = [check["name"] for check in json.loads(found.stdout)["checks"] if not check["ok"]]
    assert (found.returncode, wrong) == (Exit.FINDING, ["api"])


def test_a_drained_device_is_found_and_released_by_the_fix_that_is_named(stack: RunningStack) -> None:
    assert mathrag("gpu", "drain", "--reason", "a test", MATHRAG_URL=stack.url).returncode == Exit.DONE
    found = mathrag("doctor", "--data-dir", str(stack.data_dir))
    line = next(line for line in found.stdout.splitlines() if line.startswith("FAIL"))
    assert "a test" in line
    command = line.partition("fix: mathrag ")[2].split()
    assert mathrag(*command, MATHRAG_URL=stack.url).returncode == Exit.DONE
    assert mathrag("doctor", "--data-dir", str(stack.data_dir)).returncode == Exit.DONE


@pytest.mark.smoke
def test_a_job_is_paused_resumed_watched_and_exported(stack: RunningStack, tmp_path: Path) -> None:
    job = stack.submit("by-command", pipeline="closed-book", repeats=20, reuse="none")
    assert mathrag("job", "pause", job[:8], MATHRAG_URL=stack.url).returncode == Exit.DONE
    assert stack.get(f"/v1/jobs/{job}")["state"] == "paused"
    assert mathrag("job", "resume", job[:8], MATHRAG_URL=stack.url).returncode == Exit.DONE
    watched = mathrag("job", "watch", job, "--json", MATHRAG_URL=stack.url)
    assert json.loads(watched.stdout)["state"] == "completed"
    exported = mathrag("job", "export", job, "--to", str(tmp_path / "out"), MATHRAG_URL=stack.url)
    assert exported.returncode == Exit.DONE, exported.stderr
    lines = (tmp_path / "out" / "results.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == json.loads((tmp_path / "out" / "job.json").read_text("utf-8"))["request_counts"]["total"]
    assert json.loads((tmp_path / "out" / "audit.json").read_text("utf-8"))["clean"]


def test_curl_sends_what_is_shown(stack: RunningStack) -> None:
    bash, curl = shutil.which("bash"), shutil.which("curl")
    if bash is None or curl is None:
        pytest.skip("no curl")
    name = "it-is-$HOME"
    options = ("--name", "by-curl", "--dataset", "world", "--pipeline", "closed-book", "--metadata", f"said={name}'\"")
    shown = mathrag("job", "submit", *options, "--print-curl", MATHRAG_URL=stack.url)
    answered = [subprocess.run([bash, "-c", shown.stdout], capture_output=True, check=True) for _ in range(2)]
    jobs = [json.loads(each.stdout) for each in answered]
    assert jobs[0]["id"] == jobs[1]["id"]
    assert jobs[0]["metadata"] == {"said": f"{name}'\""}
    stack.wait(jobs[0]["id"], ended)


# Its texts have a length of their own, so that the main job, whose loads are counted, finds no reply of it.
EXPERIMENT = """
name: by-file
datasets: [{dataset: world, corpus: world}]
variants:
  - {name: hybrid, pipeline: hybrid}
  - {name: gate, pipeline: mathrag-gate, params: {gate: {tau: 1.0, truth: verifier}}}
  - {name: verified, pipeline: mathrag-gate, params: {quality: verifier}}
  - {name: routed, pipeline: mathrag-gate, params: {route: {enabled: true}}}
params: {judge: {max_tokens: 11}, generate: {max_tokens: 500}}
baseline: hybrid
"""


def test_an_experiment_runs_from_a_file_to_a_folder_that_opens_without_a_server(
    stack: RunningStack, tmp_path: Path
) -> None:
    file, out = tmp_path / "experiment.yaml", tmp_path / "report"
    file.write_text(EXPERIMENT)
    planned = mathrag("experiment", "plan", str(file), "--json", MATHRAG_URL=stack.url)
    assert planned.returncode == Exit.DONE, planned.stderr
    run = mathrag("experiment", "run", str(file), "--wait", MATHRAG_URL=stack.url)
    assert run.returncode == Exit.DONE, run.stderr
    found = json.loads(mathrag("experiment", "report", "by-file", "--json", MATHRAG_URL=stack.url).stdout)
    assert [row["variant"] for row in found["rows"]] == ["hybrid", "gate", "verified", "routed"]
    assert all(stack.get(f"/v1/jobs/{row['job']}/audit")["clean"] for row in found["rows"])
    bundled = mathrag("report", "bundle", "--experiment", "by-file", "--out", str(out), MATHRAG_URL=stack.url)
    assert bundled.returncode == Exit.DONE, bundled.stderr
    assert "by-file" in (out / "index.html").read_text("utf-8")
    drawn = {file.relative_to(out).parts[-1] for file in out.glob("**/figures/*.svg")}
    assert drawn >= {"accuracy.svg", "endings.svg", "rho.svg", "ranks.svg", "memory.svg", "latency.svg"}
