"""One question from the command line: what is found for it, and what a pipeline answers."""

from importlib.metadata import version

import httpx2
import msgspec

from mathrag.cli.output import Exit
from tests.unit.commands import Handler, Server, job, mathrag

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
    item = {"index": 0, "id": "a", "question": "x" * 1000, "gold": "5", "subject": None, "level": None}
    server(lambda _: httpx2.Response(200, json={"data": [item], "next_cursor": None}))
    shown = mathrag("dataset", "preview", "items").stdout
    assert ("x ..." in shown, "gold" in shown) == (True, True)
    assert "x" * 1000 in mathrag("dataset", "preview", "items", "--json").stdout
    corpus = {"name": "docs", "documents": 3, "indexed": True, "hash": "ab", "created_at": "2026-11-22T08:00:00Z"}
    server(lambda _: httpx2.Response(200, json=corpus))
    assert "documents       3" in mathrag("corpus", "show", "docs").stdout
