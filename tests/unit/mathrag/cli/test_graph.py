"""Graphs, the rules of their banks and datasets that are made of them: what is sent, and what is said of it."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import Result

from tests.unit.commands import Server, mathrag, refuses, says

GRAPH: dict[str, Any] = {
    "id": 1, "name": "g", "hash": "ab12", "facts": 2, "entities": 3, "relations": 1, "time_unit": "day",
    "first_time": "2014-09-20", "last_time": "2014-09-21", "largest": [{"relation": "met", "facts": 2}],
    "corpus": "g", "created_at": "2026-11-23T08:00:00Z", "repeated": 4, "documents": 2,
}  # fmt: skip


@pytest.fixture
def asked(server: Server) -> list[httpx2.Request]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            return httpx2.Response(200, json={"deleted": "g", "corpus": "g", "hint": "mathrag corpus delete g"})
        is_list = request.method == "GET" and request.url.path == "/v1/graphs"
        return httpx2.Response(200, json={"data": [GRAPH], "next_cursor": None} if is_list else GRAPH)

    return server(answer)


def test_splits_of_a_folder_are_sent_one_after_another(tmp_path: Path, asked: list[httpx2.Request]) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.tsv").write_text(f"{split}\tmet\tb\t2014-09-20\n")
    (tmp_path / "phrases").write_text("met\thas met\twas met by\n")
    options = ["--split", "valid,test", "--split", "train", "--phrases", str(tmp_path / "phrases"), "--inverse"]
    ended = mathrag("graph", "create", "g", "--from", str(tmp_path), *options)
    sent = [msgspec.json.decode(line) for line in asked[0].content.splitlines()]
    assert sent[0] == {"relation": "met", "phrase": "has met", "inverse": "was met by"}
    assert [line["subject"] for line in sent[1:]] == ["valid", "test", "train"]
    assert dict(asked[0].url.params) == {"name": "g", "inverse": "true"}
    assert ended.stdout.splitlines() == [
        "graph g: 2 facts (4 repeated facts left out), 3 entities, 1 relation, 2014-09-20 to 2014-09-21",
        "corpus g: 2 documents, indexed",
        "  next: mathrag rules mine --graph g --miner tlogic --name g --wait",
    ]


def test_the_servers_line_is_the_line_of_a_file_of_facts(tmp_path: Path, server: Server) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\n\n\nb\tr\tc\n")
    (tmp_path / "p.tsv").write_text("r\tlikes\n")
    server(refuses(422, "invalid_line", "upload, line 3: no"))
    ended = mathrag("graph", "create", "g", "--from", str(tmp_path / "g.tsv"), "--phrases", str(tmp_path / "p.tsv"))
    assert (ended.exit_code, ended.stderr) == (4, "error: g.tsv, line 4: no\n")


def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, asked: list[httpx2.Request]) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\nb\tr\n")
    ended = mathrag("graph", "create", "g", "--from", str(tmp_path / "g.tsv"))
    assert ended.exit_code == 4
    assert ended.stderr.startswith("error: g.tsv, line 2: has 2 columns; write subject")
    assert asked == []


@pytest.mark.parametrize("words", [["graph"], ["graph", "list"], ["graph", "show", "g"]])
def test_a_graph_is_shown_with_its_counts_and_times(asked: list[httpx2.Request], words: list[str]) -> None:
    said = mathrag(*words).stdout
    assert "2014-09-20 to 2014-09-21" in said
    assert ("met 2" in said, "next: mathrag rules mine --graph g" in said) == ("show" in words, "show" in words)


def test_a_graph_is_deleted_once_somebody_agrees(asked: list[httpx2.Request]) -> None:
    assert mathrag("graph", "delete", "g").exit_code == 2
    assert asked == []
    ended = mathrag("graph", "delete", "g", "--yes")
    assert [(request.method, request.url.path) for request in asked] == [("DELETE", "/v1/graphs/g")]
    assert ended.stdout == "Deleted graph g; its corpus g is kept.\n  next: mathrag corpus delete g\n"


def test_a_full_disk_is_said_and_passes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\n")
    server(refuses(507, "out_of_space", "the disk is full", "make room"))
    ended = mathrag("graph", "create", "g", "--from", str(tmp_path / "g.tsv"))
    assert (ended.exit_code, ended.stderr) == (6, "error: the disk is full\n  fix: make room\n")


# `mathrag dataset from-graph`: files are sent as lines, and what the questions are made of is said in words.

LEFT_OUT = {"repeated": 0, "known": 2, "unknown_relation": 0, "unknown_entity": 1, "many_answers": 0, "long": 0}
MADE: dict[str, Any] = {
    "id": 1, "name": "q", "hash": "ab12", "items": 5, "created_at": "2026-11-23T08:00:00Z", "grader": "text",
    "counts": {"available": 7, "answers": 9, "answered_by_graph": 0, "unnamed_answers": 0, "not_after_graph": 0,
               "with_leads": 4, "with_documents": 4, "left_out": LEFT_OUT},
}  # fmt: skip


@pytest.fixture
def asked_for_questions(server: Server) -> list[httpx2.Request]:
    return server(says(MADE, 201))


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
        "  left out        2 facts are already in the graph",
        "  left out        1 questions are about an entity that the graph does not have",
        "  next: mathrag job submit --name N --dataset q --corpus g --pipeline rulerag --set rules=bank --wait",
    ]


def test_a_template_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, asked_for_questions: list[httpx2.Request]
) -> None:
    (tmp_path / "test.tsv").write_text("a\tmet\tb\n")
    (tmp_path / "t.tsv").write_text("met\tWhom?\n")
    ended = mathrag("dataset", "from-graph", "q", "--graph", "g", "--facts", str(tmp_path / "test.tsv"),
                    "--templates", str(tmp_path / "t.tsv"))  # fmt: skip
    assert (ended.exit_code, asked_for_questions) == (4, [])
    assert ended.stderr.startswith("error: t.tsv, line 1: has 2 columns; write relation, question for the object")


# `mathrag rules`: banks from files and as files.

BANK = {"name": "mine", "rules": 2, "miner": "amie", "state": "ready"}


@pytest.fixture
def stored(server: Server) -> list[httpx2.Request]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.content == b"bad":
            return refuses(422, "invalid_line", "upload, line 1: is not a rule")(request)
        if request.content == b"long":
            return refuses(413, "too_large", "upload unpacks to too much")(request)
        return httpx2.Response(201, json=BANK) if request.method == "POST" else httpx2.Response(200, text="one\ntwo\n")

    return server(answer)


def rules(*words: object) -> Result:
    return mathrag("rules", *map(str, words))


def test_a_file_is_sent_as_it_is(stored: list[httpx2.Request], tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    file.write_bytes(b"\x1f\x8b packed")
    ended = rules("import", "mine", "--from", file, "--graph", "g")
    assert (ended.exit_code, ended.stdout) == (0, "rule bank mine: 2 rules of amie\n  next: mathrag rules show mine\n")
    assert stored[0].content == file.read_bytes()
    assert dict(stored[0].url.params) == {"name": "mine", "format": "auto", "graph": "g"}


@pytest.mark.parametrize(
    ("content", "said"), [("bad", "rules.tsv, line 1: is not a rule"), ("long", "rules.tsv unpacks to too much")]
)
@pytest.mark.usefixtures("stored")
def test_what_the_server_says_of_the_upload_is_said_of_the_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "rules.tsv"
    file.write_text(content)
    ended = rules("import", "mine", "--from", file)
    assert (ended.exit_code, said in ended.stderr) == (4, True)


@pytest.mark.usefixtures("stored")
def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    ended = rules("import", "mine", "--from", tmp_path / "none")
    assert (ended.exit_code, "none" in ended.stderr) == (4, True)


def test_a_bank_goes_to_standard_output_or_to_a_file(stored: list[httpx2.Request], tmp_path: Path) -> None:
    assert rules("export", "mine", "--format", "amie").stdout == "one\ntwo\n"
    assert str(stored[0].url).endswith("/v1/rules/mine/export?format=amie")
    out = tmp_path / "bank.jsonl"
    out.write_text("mine")
    refused = rules("export", "mine", "--out", out)
    assert (refused.exit_code, out.read_text()) == (5, "mine")
    assert "already exists" in refused.stderr
    assert rules("export", "mine", "--out", out, "--force").exit_code == 0
    assert out.read_text() == "one\ntwo\n"


# `mathrag dataset training-data`: what is asked for, and the file.


def training_data(out: Path, *words: str) -> Result:
    return mathrag("dataset", "training-data", "kin", "--rules", "kin", "--out", str(out), *words)


def test_lines_go_to_a_file_and_are_counted(server: Server, tmp_path: Path) -> None:
    asked = server(lambda _: httpx2.Response(200, text='{"a": 1}\n{"a": 2}\n'))
    out = tmp_path / "pairs.jsonl"
    made = training_data(out, "--as", "triplets", "--limit", "3", "--seed", "4", "--graph", "g")
    assert (made.exit_code, made.stdout) == (0, f"wrote 2 triplets to {out}\n")
    assert asked[0].url.path == "/v1/datasets/kin/training"
    assert dict(asked[0].url.params) == {
        "rules": "kin", "as": "triplets", "limit": "3", "seed": "4", "graph": "g", "cot": "false",
    }  # fmt: skip
    refused = training_data(out)
    assert (refused.exit_code, len(asked)) == (5, 1)
    assert "--force" in refused.stderr
    assert '"lines": 2' in training_data(out, "--force", "--json").stdout


def test_after_a_refusal_there_is_no_file(server: Server, tmp_path: Path) -> None:
    server(refuses(409, "conflict", "the rules are of another bank", "make it again"))
    refused = training_data(tmp_path / "pairs.jsonl")
    assert (refused.exit_code, list(tmp_path.iterdir())) == (5, [])
    assert "make it again" in refused.stderr


@pytest.mark.parametrize("form", ["pairs", "triplets", "instructions"])
def test_only_messages_have_a_reply_that_reasons(server: Server, tmp_path: Path, form: str) -> None:
    asked = server(lambda _: httpx2.Response(200))
    refused = training_data(tmp_path / "out", "--as", form, "--cot")
    assert (refused.exit_code, asked) == (2, [])
    assert "--as messages" in refused.stderr
