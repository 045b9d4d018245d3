"""The paper's preset from the first check to the page, on a stack of its own and a double of Ollama's protocol.

It proves that the command works and notices a model that was pulled again; the double's models know no mathematics.
"""

from pathlib import Path

import msgspec

from mathrag.stack import lock
from tests.doubles.ollama_models import SHOWN
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.running import mathrag
from tests.unit.reproductions import write

JUDGE, GENERATOR = "qwen2.5:0.5b-instruct", "qwen2.5:7b-instruct-q4_K_M"


def test_the_papers_preset_runs_to_its_table_and_refuses_a_model_that_changed(tmp_path: Path) -> None:
    """Two loads by the server's own count, however many jobs; the second command begins nothing."""
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
        assert second.returncode == 5, second.stdout + second.stderr
        assert "qwen2.5-7b-instruct was" in second.stderr
        assert double.prompts == prompts
    assert lock.find_holder(out / "stack") is None
    report = msgspec.json.decode((out / "report.json").read_bytes())
    assert {name: job["state"] for name, job in report["jobs"].items()} == dict.fromkeys(
        ("dense", "sparse", "hybrid", "gate"), "completed"
    )
    assert "| gate |" in (out / "report.md").read_text()
    assert (out / "figures" / "memory.svg").exists()
