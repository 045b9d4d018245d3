"""Retrieval on the command line: judged collections, one question, one answer."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.output import Exit
from mathrag.formatting import describe_difference
from mathrag_gate.cli import retrieval
from tests.unit import beir
from tests.unit.commands import Handler, Server, job, mathrag
from tests.unit.mathrag.cli.programs import stay_here

# `mathrag retrieval`, with the program that it runs: once in the process that it starts, else in this one.

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
    assert "1 queries without a relevant document are excluded" in ended.stdout
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
        (("--mode", "colbert"), Exit.INVALID, "unknown mode 'colbert'"),
        (("--mode", "sparse", "--set", "fusion.dense=-1"), Exit.INVALID, "params.fusion.dense"),
        (("--mode", "sparse", "--set", "fusion"), Exit.USAGE, "write --set KEY=VALUE"),
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
            "+1.0000 (equal on every query, so there is no interval), p = 0.5000: not separable on 5 queries",
        ),
    ],
)
def test_a_difference_in_words(changed: dict[str, Any], said: str) -> None:
    assert describe_difference({**TEST, **changed}) == said
    assert "too few" in describe_difference(None)


# One question from the command line: what is found for it, and what a pipeline answers.

HIT = {
    "id": "algebra/17", "hash": "9f2c", "problem": "What is 2+2?", "text": "4", "truncated": False, "rank": 1,
    "score": 0.5, "dense_rank": 2, "dense_score": 0.7, "sparse_rank": 1, "sparse_score": 8.4, "relevance": None,
    "paths": None,
}  # fmt: skip
FOUND = {"corpus": "math", "mode": "hybrid", "hits": [HIT], "duplicates": [], "action": None, "decisions": []}
ASKED = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "url": "/v1/jobs/x", "state": "running", "pipeline": "hybrid",
    "price": {"loads": 1, "load_s": None, "loads_back": 0, "calls": {"generate": 1}, "calls_before": 0},
}  # fmt: skip
SAMPLE = {
    "outcome": {"answer": "5", "trace": {"decisions": [{"stage": "rerank", "action": "none", "fallback": "timeout"}]}},
    "text": "So it is 5.", "failure": None, "detail": None,
    "documents": {"9f2c": {"problem": "What is 2+2?", "text": "4"}},
}  # fmt: skip


def answering(state: str = "completed", sample: object = SAMPLE) -> Handler:
    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.endswith("/samples/0"):
            return httpx2.Response(200, json=sample)
        if path.startswith("/v1/jobs/"):
            return httpx2.Response(200, json=job(state, done=2))
        if path == "/v1/corpora":
            return httpx2.Response(200, json={"data": [{"name": "math"}], "next_cursor": None})
        return httpx2.Response(200, json=FOUND) if path == "/v1/search" else httpx2.Response(202, json=ASKED)

    return answer


def test_a_search_prints_documents_with_their_ranks(server: Server) -> None:
    requests = server(answering())
    ended = mathrag("search", "What is 2+3?", "--k", "3", "--set", "rrf_k=10")
    assert ended.exit_code == Exit.DONE, ended.output
    assert "1. algebra/17  score 0.5000 (dense 2, sparse 1)" in ended.stdout
    sent = msgspec.json.decode(requests[-1].content)
    assert (sent["corpus"], sent["k"], sent["params"]) == ("math", 3, {"rrf_k": 10})


def test_a_chat_shows_progress_and_then_the_answer_with_its_documents(server: Server) -> None:
    server(answering())
    ended = mathrag("chat", "What is 2+3?", "--corpus", "math")
    assert ended.exit_code == Exit.DONE, ended.output
    assert "hybrid: generate 1 at most, 1 model to load first" in ended.stderr
    for words in ("So it is 5.", "answer          5", "What is 2+2? 4", "left out: timeout"):
        assert words in ended.stdout


def test_a_chat_that_failed_says_why_and_exits_with_a_finding(server: Server) -> None:
    failed = {**SAMPLE, "outcome": None, "text": None, "failure": "context_exceeded", "detail": "too long"}
    server(answering(sample=failed))
    ended = mathrag("chat", "What is 2+3?")
    assert ended.exit_code == Exit.FINDING
    assert "context_exceeded: too long" in ended.stdout


def test_the_version_is_printed() -> None:
    ended = mathrag("--version")
    assert ended.exit_code == Exit.DONE
    assert ended.stdout.startswith(f"mathrag {version('mathrag-gate')}")


def test_datasets_and_corpora_are_shown_and_previewed(server: Server) -> None:
    item = {
        "index": 0,
        "id": "a",
        "question": "x" * 1000,
        "gold": "5",
        **dict.fromkeys(("subject", "level", "relation")),
    }
    server(lambda _: httpx2.Response(200, json={"data": [item], "next_cursor": None}))
    shown = mathrag("dataset", "preview", "items")
    assert ("x ..." in shown.stdout, "gold" in shown.stdout, shown.exit_code) == (True, True, Exit.DONE)
    assert "x" * 1000 in mathrag("dataset", "preview", "items", "--json").stdout
    corpus = {"name": "docs", "documents": 3, "indexed": True, "hash": "ab", "created_at": "2026-11-22T08:00:00Z"}
    server(lambda _: httpx2.Response(200, json=corpus))
    assert "documents       3" in mathrag("corpus", "show", "docs").stdout
