"""The worked comparison: one line a pipeline, with what the API says of it against the baseline."""

from typing import Any

import httpx2

from tools.bench.comparison import COLUMNS, Row, line, said, table


def report(**changed: Any) -> dict[str, Any]:
    return {
        "state": "completed", "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}, "failures": {},
        "extraction": {"ok": 100}, "calls_made": {"retrieve": 100, "judge": 0, "generate": 100}, "model_loads": 1,
        "seconds": 12.3, "refused": 0, "fallbacks": {}, "retrieval": None, **changed,
    }  # fmt: skip


def row(name: str, **changed: Any) -> Row:
    return Row(name, "", report(**changed), clean=True)


def answers(request: httpx2.Request) -> httpx2.Response:
    asked = request.url.params
    pairs = [{"left": name, "words": f"{name} against {asked['baseline']}"} for name in asked.get_list("job")]
    return httpx2.Response(200, json={"pairs": [pair for pair in pairs if pair["left"] != asked["baseline"]]})


def test_the_api_compares_all_that_completed_with_dense_at_once() -> None:
    rows = [
        *(row(name, id=f"world-{name}") for name in ("dense", "crag")),
        Row("self-rag", "no reflection tokens", None, clean=True),
        row("hyde", state="failed", id="world-hyde"),
    ]
    with httpx2.Client(base_url="http://api", transport=httpx2.MockTransport(answers)) as api:
        assert said(api, "world", rows) == {"crag": "world-crag against world-dense"}
        assert said(api, "world", rows[1:]) == said(api, "world", rows[:1]) == {}


def test_a_line_shows_failures_refusals_fallbacks_and_the_calls_of_each_role() -> None:
    figures = {
        "failures": {"truncated": 2}, "refused": 8, "fallbacks": {"rerank": {"not_configured": 3}},
        "retrieval": {"final": {"nDCG@10": {"value": 0.61234}}},
    }  # fmt: skip
    shown = line(row("enhanced", **figures), "better: +10.0 points")
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert dict(zip(COLUMNS, cells, strict=True)) == {
        "pipeline": "enhanced",
        "accuracy (Wilson 95 %)": "50.0 % (40.0 to 60.0)",
        "against dense (McNemar, Holm)": "better: +10.0 points",
        "nDCG@10": "0.612",
        "failed": "truncated 2",
        "refused": "8",
        "fallbacks": "rerank: not_configured 3",
        "calls made": "retrieve 100, generate 100",
        "loads": "1",
        "seconds": "12",
        "audit": "clean",
    }


def test_a_pipeline_that_the_service_refuses_stands_in_the_table_with_its_reason() -> None:
    refused = Row("self-rag", "the model has no reflection tokens", None, clean=True)
    lines = table([row("dense"), refused], {}).splitlines()
    assert lines[1].startswith("| self-rag | not run: the model has no reflection tokens | -")
    assert lines[1].count("|") == lines[0].count("|")


def test_a_job_that_failed_as_a_whole_stands_there_with_its_reason() -> None:
    failed = Row("crag", "the fallback corpus is gone", report(state="failed"), clean=True)
    assert "not run: the fallback corpus is gone" in table([failed], {})


def test_accuracy_without_a_single_verdict_is_no_number() -> None:
    nothing = row("dense", accuracy={"value": None, "low": 0.0, "high": 1.0})
    assert "| n/a |" in table([nothing], {})
