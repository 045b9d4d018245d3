"""`mathrag retrieval`, with the program that it runs: once in the process that it starts, else in this one."""

import json
from pathlib import Path
from typing import Any

import pytest

from mathrag.cli import retrieval
from mathrag.cli.output import Exit
from shared.pages.formatting import describe_difference
from tests.unit import beir
from tests.unit.commands import mathrag
from tests.unit.mathrag.cli.programs import stay_here

TEST = {"value": 0.02, "low": -0.01, "high": 0.05, "p": 0.1, "adjusted": 0.2, "separable": False, "effect": 0.3, "n": 5}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path / "data"))
    return beir.write(tmp_path / "small")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    stay_here(monkeypatch)


def test_a_mode_is_measured_and_compared(folder: Path, tmp_path: Path) -> None:
    options = ("--against", "hybrid", "--run", str(tmp_path / "run"), "--metric", "nDCG@1")
    ended = mathrag("retrieval", "eval", "--from", str(folder), "--mode", "sparse", *options)
    assert ended.exit_code == Exit.DONE, ended.output
    assert "sparse: 5 queries of test, 5 documents" in ended.stdout
    assert "1 queries without a relevant document are left out" in ended.stdout
    head, *rows = (
        line.split() for line in ended.stdout.splitlines() if line.startswith(("MODE", "sparse ", "hybrid "))
    )
    assert [row[0] for row in rows] == ["sparse", "hybrid"]
    assert {len(head)} == {len(row) for row in rows}
    assert head[1:5] == ["nDCG@10", "Recall@100", "MAP", "MRR@10"]
    assert head[-1] == "nDCG@1"
    assert "not separable on 5 queries" in ended.stdout
    assert (tmp_path / "run").read_text().startswith("area Q0 circle 1 ")
    assert list((tmp_path / "data" / "evaluations").iterdir())


@pytest.mark.usefixtures("here")
def test_json_has_every_measure_by_name_and_every_query(folder: Path) -> None:
    ended = mathrag("retrieval", "eval", "--from", str(folder), "--mode", "sparse", "--k", "10", "--json")
    found = json.loads(ended.stdout)
    assert {"nDCG@10", "Recall@10", "Precision@10", "F1@10", "MAP", "MRR@10"} <= found.keys()
    assert found["per_query"]["area"]["MRR@10"] == 1
    assert found["indexes"]["sparse"]["k1"] == 1.2


@pytest.mark.usefixtures("here")
def test_weights_are_tuned(folder: Path) -> None:
    command = ("retrieval", "tune", "--from", str(folder), "--mode", "weighted-rank", "--set", "rrf_k=10")
    ended = mathrag(*command)
    assert ended.exit_code == Exit.DONE, ended.output
    assert "weighted-rank: nDCG@10 is best at dense = " in ended.stdout
    assert "half of test.tsv, seed 0" in ended.stdout
    assert "--set fusion.method=weighted --set fusion.normaliser=rank --set fusion.dense=" in ended.stdout
    assert json.loads(mathrag(*command, "--json").stdout)["metric"] == "nDCG@10"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--mode", "colbert"), Exit.INVALID, "no mode 'colbert'"),
        (("--mode", "sparse", "--set", "fusion.dense=-1"), Exit.INVALID, "params.fusion.dense"),
        (("--mode", "sparse", "--set", "fusion"), Exit.USAGE, "write it as key=value"),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, options: tuple[str, ...], code: int, said: str) -> None:
    ended = mathrag("retrieval", "eval", "--from", str(folder), *options)
    assert ended.exit_code == code
    assert said in ended.stderr
    assert "Traceback" not in ended.output


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    ended = mathrag("retrieval", "eval", "--from", str(tmp_path / "nowhere"), "--mode", "dense", "--json")
    assert ended.exit_code == Exit.NOT_FOUND
    assert json.loads(ended.stderr)["error"]["kind"] == "not_found"


def test_a_process_that_says_nothing_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "SERVICE", "services.retriever.nothing")
    ended = mathrag("retrieval", "eval", "--from", ".", "--mode", "dense")
    assert ended.exit_code == Exit.INTERNAL
    assert "services.retriever.nothing ended with exit code 1" in ended.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "+0.0200 (-0.0100 to +0.0500), p = 0.2000: not separable on 5 queries"),
        ({"separable": True, "adjusted": 0.01}, "+0.0200 (-0.0100 to +0.0500), p = 0.0100: separable"),
        ({"separable": True, "adjusted": 1e-9}, "+0.0200 (-0.0100 to +0.0500), p < 0.0001: separable"),
        (
            {"value": 1.0, "low": None, "high": None, "adjusted": 0.5},
            "+1.0000 (the same on every query, so no interval), p = 0.5000: not separable on 5 queries",
        ),
    ],
)
def test_a_difference_in_words(changed: dict[str, Any], said: str) -> None:
    assert describe_difference({**TEST, **changed}) == said
    assert "too few" in describe_difference(None)
