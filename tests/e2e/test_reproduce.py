"""The paper's preset from the first check to the page, on a stack of its own and a double of Ollama's protocol; and the
paper's published runs, graded again.

The first proves that the command works and that answers of a model are never mixed with those of one that was pulled
again; the models of the double know no mathematics.
"""

import os
import re
from pathlib import Path

import msgspec
import pytest

from mathrag.cli.output import Exit
from mathrag_gate.reproduction.published import TITLES
from mathrag_gate.stack import control
from shared.pages.pages import BLOCK, find_block_names
from shared.settings import REPOSITORY
from tests.doubles.ollama_server import SHOWN, Ollama, serve_ollama
from tests.running import RunningStack, mathrag
from tests.unit.reproductions import METHODS, write, write_runs

DATA = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data"
"""Beside the repository, where the published runs and MATH are at hand."""
PAGE = REPOSITORY / "docs" / "reference" / "paper-table.md"
JUDGE, GENERATOR = "qwen2.5:0.5b-instruct", "qwen2.5:7b-instruct-q4_K_M"


def test_the_papers_preset_runs_to_its_report_and_again_where_a_model_changed(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", range(20))
    write(tmp_path / "test.jsonl", range(100, 104))
    double = Ollama(shown=SHOWN)
    for tag in (JUDGE, GENERATOR):
        double.pull(tag)
    out = tmp_path / "out"
    with serve_ollama(double) as server:
        command = ("reproduce", "math", "--data", str(tmp_path), "--items", "4", "--repeats", "2", "--yes")
        command += ("--server", server.url, "--embedder", "shipped", "--out", str(out))
        first = mathrag(*command)
        assert first.returncode == 0, first.stdout + first.stderr
        assert double.loads == [JUDGE, GENERATOR]
        assert double.runners == {}  # a stack that stops leaves nothing on the server
        prompts = double.prompts
        double.pull(GENERATOR, "v2")
        second = mathrag(*command)
        assert second.returncode == 0, second.stdout + second.stderr
        assert double.prompts > prompts
    assert control.find_holder(out / "stack") is None
    runs = sorted(out.glob("math-paper-*"))
    assert len(runs) == 2
    for run in runs:
        report = msgspec.json.decode((run / "data" / "experiment.json").read_bytes())
        assert {row["variant"]: row["state"] for row in report["rows"]} == dict.fromkeys(
            ("dense", "sparse", "hybrid", "gate"), "completed"
        )
        assert (run / "figures" / "accuracy.svg").exists()


def test_published_runs_are_graded_again_and_a_second_command_finds_them(stack: RunningStack, tmp_path: Path) -> None:
    write_runs(tmp_path)
    write(tmp_path / "train.jsonl", range(9))
    command = ("reproduce", "published", "--data", str(tmp_path), "--name", "two-questions")
    first = mathrag(*command, MATHRAG_URL=stack.url)
    assert first.returncode == Exit.DONE, first.stderr
    for method in METHODS:
        row = rf"{method} +75.0 % +100.0 % \(.*\), mean of 2 items, 4 answers +1 of 4"
        assert re.search(row, first.stdout), first.stdout
    pair = r"^two-questions-(dense|sparse|hybrid) +two-questions-mathrag-gate +\w"
    assert len(re.findall(pair, first.stdout, re.MULTILINE)) == 3
    second = mathrag(*command, "--out", str(tmp_path / "page.md"), MATHRAG_URL=stack.url)
    assert (second.returncode, second.stdout) == (Exit.DONE, first.stdout)
    changed = "| train/prealgebra/2.json | `4` | `\\frac{8}{2}` | `4`, `8` | wrong | right |"
    assert changed in (tmp_path / "page.md").read_text("utf-8")
    assert "job two-questions-dense already exists" in second.stderr


@pytest.mark.skipif(not (DATA / "paper-runs").is_dir(), reason="no published runs beside the repository")
@pytest.mark.parametrize("grader", ["math-dataset", "math"])
def test_the_page_has_the_figures_that_the_published_runs_give(
    stack: RunningStack, tmp_path: Path, grader: str
) -> None:
    page = PAGE.read_text("utf-8")
    assert sorted(find_block_names(page)) == sorted(TITLES)
    written = tmp_path / "page.md"
    written.write_text(re.sub(r"\d", "?", page), "utf-8")
    files = ("--data", str(DATA / "paper-runs"), "--problems", str(DATA / "math" / "train.jsonl"))
    found = mathrag(
        "reproduce", "published", *files, "--grader", grader, "--out", str(written), "--json", MATHRAG_URL=stack.url
    )
    assert found.returncode == Exit.DONE, found.stderr
    computed = [block[0] for block in BLOCK.finditer(written.read_text("utf-8"))]
    expected = [block[0] for block in BLOCK.finditer(page)]
    assert computed == [block.replace("this service, math-dataset", f"this service, {grader}") for block in expected]
    words = [pair["words"] for pair in msgspec.json.decode(found.stdout)["comparison"]["pairs"]]
    assert [f"| {said} |" in page for said in words] == [True, True, True]
