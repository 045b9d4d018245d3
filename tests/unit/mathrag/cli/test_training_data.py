"""`mathrag dataset training-data`: what is asked for, and the file."""

from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from mathrag.cli.main import app
from tests.unit.commands import Server


def run(out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["dataset", "training-data", "kin", "--rules", "kin", "--out", str(out), *words])


def test_lines_go_to_a_file_and_are_counted(server: Server, tmp_path: Path) -> None:
    asked = server(lambda _: httpx2.Response(200, text='{"a": 1}\n{"a": 2}\n'))
    out = tmp_path / "pairs.jsonl"
    made = run(out, "--as", "triplets", "--limit", "3", "--seed", "4", "--graph", "g")
    assert (made.exit_code, made.stdout) == (0, f"2 triplets are in {out}\n")
    assert asked[0].url.path == "/v1/datasets/kin/training"
    assert dict(asked[0].url.params) == {
        "rules": "kin", "as": "triplets", "limit": "3", "seed": "4", "graph": "g", "cot": "false",
    }  # fmt: skip
    refused = run(out)
    assert (refused.exit_code, len(asked)) == (5, 1)
    assert "--force" in refused.stderr
    assert '"lines": 2' in run(out, "--force", "--json").stdout


def test_after_a_refusal_there_is_no_file(server: Server, tmp_path: Path) -> None:
    problem = {"type": "urn:mathrag:conflict", "detail": "the rules are of another bank", "hint": "make it again"}
    server(lambda _: httpx2.Response(409, json=problem))
    refused = run(tmp_path / "pairs.jsonl")
    assert (refused.exit_code, list(tmp_path.iterdir())) == (5, [])
    assert "make it again" in refused.stderr


@pytest.mark.parametrize("form", ["pairs", "triplets", "instructions"])
def test_only_messages_have_a_reply_that_reasons(server: Server, tmp_path: Path, form: str) -> None:
    asked = server(lambda _: httpx2.Response(200))
    refused = run(tmp_path / "out", "--as", form, "--cot")
    assert (refused.exit_code, asked) == (2, [])
    assert "--as messages" in refused.stderr
