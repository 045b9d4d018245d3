"""`mathrag dataset from-graph`: files are sent as lines, and what the questions are made of is said in words."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.client import client
from tests.unit.commands import mathrag

LEFT_OUT = {"repeated": 0, "known": 2, "unknown_relation": 0, "unknown_entity": 1, "many_answers": 0, "long": 0}
MADE: dict[str, Any] = {
    "id": 1, "name": "q", "hash": "ab12", "items": 5, "created_at": "2026-11-23T08:00:00Z", "grader": "text",
    "counts": {"available": 7, "answers": 9, "answered_by_graph": 0, "unnamed_answers": 0, "not_after_graph": 0,
               "with_leads": 4, "with_documents": 4, "left_out": LEFT_OUT},
}  # fmt: skip


@pytest.fixture
def asked_for_questions(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        requests.append(request)
        return httpx2.Response(201, json=MADE)

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    return requests


def test_templates_and_held_out_facts_are_sent(tmp_path: Path, asked_for_questions: list[httpx2.Request]) -> None:
    (tmp_path / "test.tsv").write_text("a\tmet\tb\n")
    (tmp_path / "templates").write_text("met\tWhom met {subject}?\tWho met {object}?\n")
    options = ["--rules", "bank", "--limit", "5", "--side", "object", "--templates", str(tmp_path / "templates")]
    ended = mathrag("dataset", "from-graph", "q", "--graph", "g", "--facts", str(tmp_path), *options)
    (request,) = asked_for_questions
    assert (request.method, request.url.path) == ("POST", "/v1/datasets/from-graph")
    assert dict(request.url.params) == {
        "name": "q", "graph": "g", "rules": "bank", "limit": "5", "seed": "0", "side": "object", "grader": "text",
    }  # fmt: skip
    assert [msgspec.json.decode(line) for line in request.content.splitlines()] == [
        {"relation": "met", "object_question": "Whom met {subject}?", "subject_question": "Who met {object}?"},
        {"subject": "a", "relation": "met", "object": "b"},
    ]
    assert ended.stdout.splitlines() == [
        "dataset q: 5 of 7 questions",
        "  answers         9",
        "  rules           4 questions have an answer that a rule leads to",
        "  documents       4 questions have gold documents",
        "  left out        2 facts are in the graph already",
        "  left out        1 questions are about an entity that the graph does not have",
        "  next: mathrag job submit --name N --dataset q --corpus g --pipeline rulerag --set rules=bank --wait",
    ]


def test_a_template_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, asked_for_questions: list[httpx2.Request]) -> None:
    (tmp_path / "test.tsv").write_text("a\tmet\tb\n")
    (tmp_path / "t.tsv").write_text("met\tWhom?\n")
    ended = mathrag("dataset", "from-graph", "q", "--graph", "g", "--facts", str(tmp_path / "test.tsv"),
                    "--templates", str(tmp_path / "t.tsv"))  # fmt: skip
    assert (ended.exit_code, asked_for_questions) == (4, [])
    assert ended.stderr.startswith("error: t.tsv, line 1: has 2 columns; write relation, question for the object")
