"""Clients against a running stack: the command line, an assistant over MCP, and Python."""

import ast
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from mathrag import AsyncClient, Client
from mathrag.cli.output import Exit
from mathrag.client.errors import TimedOut
from tests.running import DEADLINE_S, REPOSITORY, RunningStack, ended, mathrag

pytestmark = pytest.mark.anyio


# The doctor, a job on its way, and requests that curl sends.


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


def test_a_model_is_connected_after_it_has_answered_one_prompt(tmp_path: Path) -> None:
    file = shutil.copy(REPOSITORY / "models" / "rules-generator-f16.gguf", tmp_path / "mine.gguf")
    settings = tmp_path / "mathrag.yaml"
    settings.write_text("# Ours.\nport: 8099\n")
    variables = {"MATHRAG_CONFIG": str(settings), "MATHRAG_DATA_DIR": str(tmp_path / "data")}
    tried = mathrag("model", "connect", str(file), "--role", "generate", "--json", **variables)
    assert tried.returncode == Exit.DONE, tried.stderr
    found = json.loads(tried.stdout)
    assert found["reply"]
    assert (found["name"], found["roles"], found["next"]) == ("mine", ["generate"], ["mathrag up --detach"])
    assert settings.read_text().startswith("# Ours.\nport: 8099\n")
    assert mathrag("config", "validate", str(settings), **variables).returncode == Exit.DONE
    (tmp_path / "not.gguf").write_text("no model")
    refused = mathrag("model", "connect", str(tmp_path / "not.gguf"), **variables)
    assert (refused.returncode, "is not the GGUF file of a language model" in refused.stderr) == (Exit.INVALID, True)


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


# `mathrag mcp` as an assistant starts it: the SDK's own client, over standard input and output.


@asynccontextmanager
async def assistant(url: str, errors: Path, *options: str) -> AsyncIterator[McpClient]:
    command = ["-m", "mathrag.cli.main", "mcp", *options]
    started = StdioServerParameters(
        command=sys.executable, args=command, env={"MATHRAG_URL": url, "MATHRAG_API_KEY": ""}
    )
    with errors.open("w") as stream:
        async with McpClient(stdio_client(started, errlog=stream), read_timeout_seconds=DEADLINE_S) as client:
            yield client


async def told(client: McpClient, tool: str, **given: Any) -> Any:
    answer = await client.call_tool(tool, given)
    assert not answer.is_error, answer.content
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    return answer.structured_content


async def test_an_assistant_searches_asks_and_runs_jobs(stack: RunningStack, tmp_path: Path) -> None:
    question = "What is 3 plus 4?"
    # Other tests of the session add corpora, so that one has to be chosen.
    async with assistant(stack.url, tmp_path / "errors", "--corpus", "world") as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["enhanced-search", "enhanced-chat", "corpus-create", "job-submit", "job-status", "job-report"]
        found = await told(client, "enhanced-search", query=question, top_k=3)
        assert (found["corpus"], found["mode"], len(found["hits"])) == ("world", "hybrid", 3)
        assert found["action"] in ("correct", "ambiguous", "incorrect")
        assert {"intent", "rerank", "crag"} <= {each["stage"] for each in found["decisions"]}
        answer = await told(client, "enhanced-chat", query=question, context_length=256)
        chat = await told(client, "job-status", job=answer["job"])
        stack.wait(chat["id"], ended)
        assert (chat["pipeline"], chat["params"]["compress"]["tokens"]) == ("enhanced", 256)
        assert stack.get(f"/v1/jobs/{chat['id']}")["state"] == "completed"
        asked = {"name": "by-mcp", "dataset": "world", "corpus": "world", "pipeline": "sparse"}
        job = (await told(client, "job-submit", **asked))["id"]
        stack.wait(job, ended)
        assert (await told(client, "job-status", job=job))["state"] == "completed"
        assert (await told(client, "job-report", job="by-mcp"))["accuracy"]["graded"] > 0
        refused = await client.call_tool("enhanced-search", {"query": question, "corpus": "nowhere"})
        assert refused.is_error
        assert "fix: mathrag corpus list" in refused.content[0].text  # type: ignore[union-attr]
    assert (tmp_path / "errors").read_text() == ""


async def test_an_api_that_is_away_is_the_tools_error(tmp_path: Path) -> None:
    async with assistant("http://127.0.0.1:1", tmp_path / "errors", "--corpus", "world") as client:
        assert (await client.list_tools()).tools
        answer = await client.call_tool("enhanced-search", {"query": "What?"})
        assert (answer.is_error, "mathrag up" in answer.content[0].text) == (True, True)  # type: ignore[union-attr]
    assert (tmp_path / "errors").read_text() == ""


# The notebook and the page as they stand there, and a killed server.

NOTEBOOK = REPOSITORY / "docs" / "tutorial" / "python.ipynb"
PAGE = REPOSITORY / "docs" / "how-to" / "python.md"


@pytest.fixture
def here(stack: RunningStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MATHRAG_URL", stack.url)
    monkeypatch.setenv("MATHRAG_API_KEY", "")
    monkeypatch.chdir(tmp_path)


def run_cell(source: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 - it is our own
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307 - it is our own
    show = getattr(value, "_repr_html_", None)
    assert show() if show else repr(value)
    return value


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore:demonstration models")
def test_the_notebook_runs_and_runs_again() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    for _ in range(2):
        names: dict[str, Any] = {}
        for cell in cells:
            run_cell("".join(cell["source"]), names)
        assert names["corpus"].documents == 9
        assert names["hit"].text.startswith("The printer")
        assert len(names["frame"]) == 10
        assert names["grades"].undecided == 5


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore:demonstration models")
def test_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "What is 2 + 2?", "answer": "4"}\n')
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "sums.md").write_text("# Sums\n\nTwo plus two is 4.\n")
    with Client() as client:
        client.corpora.create("notes", [{"text": "Parcels are accepted until 17:30."}, {"text": "The car is a Skoda."}])
        client.datasets.create("questions", [{"question": "Which car?", "answer": "Skoda"}], grader="contains")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        run_cell(block, names)
    names["client"].close()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("how", ["wait", "watch"])
def test_a_killed_server_is_waited_for(stack: RunningStack, how: str) -> None:
    with Client() as client:
        job = client.run("mathrag-gate", dataset="world", corpus="world", seed=17, candidates=6 + (how == "wait"))
        killing = threading.Timer(0.5, stack.kill, ["orchestrator"])
        killing.start()
        if how == "wait":
            job.wait(DEADLINE_S)
        else:
            assert [now.state for now in job.watch()][-1] == "completed"
        killing.join()
        assert job.state == "completed"
        # The one who was killed may not be back: the next request waits for it.
        assert job.report().accuracy.graded == job.counts.total


@pytest.mark.usefixtures("here")
def test_waiting_ends_when_the_caller_says() -> None:
    with Client() as client:
        job = client.run("mathrag-gate", dataset="world", corpus="world", seed=18, repeats=3)
        with pytest.raises(TimedOut):
            job.wait(0)
        job.cancel()
        assert job.wait(DEADLINE_S, check=False).has_ended


@pytest.mark.anyio
@pytest.mark.usefixtures("here")
async def test_the_asynchronous_client_does_the_same() -> None:
    async with AsyncClient() as client:
        job = await client.run("hybrid", dataset="world", corpus="world")
        assert [now.state async for now in job.watch()][-1] == "completed"
        frame = await job.samples().to_pandas()
        grades = await job.grade(lambda row: row.correct)
        assert len(frame) == job.counts.total == len([each async for each in job.samples()])
        assert grades.accuracy.value == pytest.approx((await job.report()).accuracy.value)
        assert grades.disagreements == ()


@pytest.mark.usefixtures("here")
def test_what_was_saved_is_what_is_listed(tmp_path: Path) -> None:
    with Client() as client:
        job = client.run("sparse", dataset="world", corpus="world").wait()
        lines = [each.index for each in job.results()]
        job.save_results(tmp_path / "out.csv", format="csv")
        job.save_results(tmp_path / "out.jsonl", format="jsonl")
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == len(lines) == job.counts.total
    assert (tmp_path / "out.csv").read_bytes().startswith(b"index,repeat,")
