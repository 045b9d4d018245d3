"""The Python client against a running stack: the notebook and the page as they stand there, and a killed server."""

import ast
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from mathrag import AsyncClient, Client
from mathrag.client.errors import TimedOut
from tests.running import DEADLINE_S, REPOSITORY, RunningStack

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
def test_the_page_runs() -> None:
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
        job = client.pipeline("mathrag-gate").run("world", corpus="world", seed=17, candidates=6 + (how == "wait"))
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
        job = client.pipeline("mathrag-gate").run("world", corpus="world", seed=18, repeats=3)
        with pytest.raises(TimedOut):
            job.wait(0)
        job.cancel()
        assert job.wait(DEADLINE_S, check=False).has_ended


@pytest.mark.anyio
@pytest.mark.usefixtures("here")
async def test_the_asynchronous_client_does_the_same() -> None:
    async with AsyncClient() as client:
        job = await client.pipeline("hybrid").run("world", corpus="world")
        assert [now.state async for now in job.watch()][-1] == "completed"
        frame = await job.samples().to_pandas()
        grades = await job.grade(lambda row: row.correct)
        assert len(frame) == job.counts.total == len([each async for each in job.samples()])
        assert grades.accuracy.value == pytest.approx((await job.report()).accuracy.value)
        assert grades.disagreements == ()


@pytest.mark.usefixtures("here")
def test_what_was_saved_is_what_is_listed(tmp_path: Path) -> None:
    with Client() as client:
        job = client.pipeline("sparse").run("world", corpus="world").wait()
        lines = [each.index for each in job.results()]
        job.save_results(tmp_path / "out.csv", format="csv")
        job.save_results(tmp_path / "out.jsonl", format="jsonl")
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == len(lines) == job.counts.total
    assert (tmp_path / "out.csv").read_bytes().startswith(b"index,repeat,")
