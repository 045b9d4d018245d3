from collections.abc import Callable
from pathlib import Path

import httpx2
import msgspec
import pytest
from typer.testing import CliRunner, Result

from mathrag.cli.main import app
from mathrag.client import client
from mathrag.client.uploads import Sources
from shared.ingest import paths
from tests.unit.commands import Server

# Rule banks from files and as files, from the command line.


BANK = {"name": "mine", "rules": 2, "miner": "amie", "state": "ready"}
Run = Callable[..., Result]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        requests.append(request)
        if request.content == b"bad":
            problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 1: is not a rule"}
            return httpx2.Response(422, json=problem)
        if request.content == b"long":
            return httpx2.Response(413, json={"type": "urn:mathrag:too_large", "detail": "upload unpacks to too much"})
        return httpx2.Response(201, json=BANK) if request.method == "POST" else httpx2.Response(200, text="one\ntwo\n")

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    return requests


def run_rule_files(*words: object) -> Result:
    return CliRunner().invoke(app, ["rules", *map(str, words)])


def test_a_file_is_sent_as_it_is(asked: list[httpx2.Request], tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    file.write_bytes(b"\x1f\x8b packed")
    ended = run_rule_files("import", "mine", "--from", file, "--graph", "g")
    assert (ended.exit_code, ended.stdout) == (0, "rule bank mine: 2 rules of amie\n  next: mathrag rules show mine\n")
    assert asked[0].content == file.read_bytes()
    assert dict(asked[0].url.params) == {"name": "mine", "format": "auto", "graph": "g"}


@pytest.mark.parametrize(
    ("content", "said"), [("bad", "rules.tsv, line 1: is not a rule"), ("long", "rules.tsv unpacks to too much")]
)
@pytest.mark.usefixtures("asked")
def test_what_the_server_says_of_the_upload_is_said_of_the_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "rules.tsv"
    file.write_text(content)
    ended = run_rule_files("import", "mine", "--from", file)
    assert (ended.exit_code, said in ended.stderr) == (4, True)


@pytest.mark.usefixtures("asked")
def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    ended = run_rule_files("import", "mine", "--from", tmp_path / "none")
    assert (ended.exit_code, "none" in ended.stderr) == (4, True)


def test_a_bank_goes_to_standard_output_or_to_a_file(asked: list[httpx2.Request], tmp_path: Path) -> None:
    assert run_rule_files("export", "mine", "--format", "amie").stdout == "one\ntwo\n"
    assert str(asked[0].url).endswith("/v1/rules/mine/export?format=amie")
    out = tmp_path / "bank.jsonl"
    out.write_text("mine")
    refused = run_rule_files("export", "mine", "--out", out)
    assert (refused.exit_code, out.read_text()) == (5, "mine")
    assert "already exists" in refused.stderr
    assert run_rule_files("export", "mine", "--out", out, "--force").exit_code == 0
    assert out.read_text() == "one\ntwo\n"


# `mathrag dataset training-data`: what is asked for, and the file.


def run_training_data(out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["dataset", "training-data", "kin", "--rules", "kin", "--out", str(out), *words])


def test_lines_go_to_a_file_and_are_counted(server: Server, tmp_path: Path) -> None:
    asked = server(lambda _: httpx2.Response(200, text='{"a": 1}\n{"a": 2}\n'))
    out = tmp_path / "pairs.jsonl"
    made = run_training_data(out, "--as", "triplets", "--limit", "3", "--seed", "4", "--graph", "g")
    assert (made.exit_code, made.stdout) == (0, f"2 triplets are in {out}\n")
    assert asked[0].url.path == "/v1/datasets/kin/training"
    assert dict(asked[0].url.params) == {
        "rules": "kin", "as": "triplets", "limit": "3", "seed": "4", "graph": "g", "cot": "false",
    }  # fmt: skip
    refused = run_training_data(out)
    assert (refused.exit_code, len(asked)) == (5, 1)
    assert "--force" in refused.stderr
    assert '"lines": 2' in run_training_data(out, "--force", "--json").stdout


def test_after_a_refusal_there_is_no_file(server: Server, tmp_path: Path) -> None:
    problem = {"type": "urn:mathrag:conflict", "detail": "the rules are of another bank", "hint": "make it again"}
    server(lambda _: httpx2.Response(409, json=problem))
    refused = run_training_data(tmp_path / "pairs.jsonl")
    assert (refused.exit_code, list(tmp_path.iterdir())) == (5, [])
    assert "make it again" in refused.stderr


@pytest.mark.parametrize("form", ["pairs", "triplets", "instructions"])
def test_only_messages_have_a_reply_that_reasons(server: Server, tmp_path: Path, form: str) -> None:
    asked = server(lambda _: httpx2.Response(200))
    refused = run_training_data(tmp_path / "out", "--as", form, "--cot")
    assert (refused.exit_code, asked) == (2, [])
    assert "--as messages" in refused.stderr


# Uploads from the command line: streamed from disk, and errors said in terms of the file.


def test_a_line_that_was_sent_is_found_again_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "a"}\n\n\n{"text": "b"}\n{"text": "c"}')
    sources = Sources(paths.corpus_lines(file))
    assert list(sources) == [b'{"text": "a"}\n', b'{"text": "b"}\n', b'{"text": "c"}\n']
    assert [sources.where(sent) for sent in (1, 2, 3)] == [("corpus.jsonl", line) for line in (1, 4, 5)]


def test_every_file_of_a_folder_is_a_source(tmp_path: Path) -> None:
    for number in (1, 2):
        file = tmp_path / "train" / "algebra" / f"{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode({"problem": "?", "solution": "!"}))
    sources = Sources(paths.corpus_lines(tmp_path))
    assert len(list(sources)) == 2
    assert sources.where(2) == ("train/algebra/2.json", 1)


def test_a_message_with_two_lines_names_both_in_the_file() -> None:
    sources = Sources([("a.jsonl", 3, b"{}"), ("b.jsonl", 9, b"{}")])
    list(sources)
    said = "upload, line 2: repeats the id 'x' of upload, line 1; rename one"
    assert sources.translate(said) == "b.jsonl, line 9: repeats the id 'x' of a.jsonl, line 3; rename one"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "a"}\n\n{"text": "b"}\n')
    return file


def test_a_corpus_is_sent_line_by_line(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        request.read()
        return httpx2.Response(201, json={"documents": 2, "skipped": 0, "rejected": 0, "rejected_lines": []})

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    ended = CliRunner().invoke(app, ["corpus", "create", "mine", "--from", str(corpus)])
    assert (ended.exit_code, "corpus mine: 2 documents, indexed" in ended.stdout) == (0, True)
    assert requests[0].headers["transfer-encoding"] == "chunked"
    assert requests[0].content == b'{"text": "a"}\n{"text": "b"}\n'
    assert requests[0].url.params["name"] == "mine"


def test_indexes_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"signature": "ab", "documents": 2, "seconds": 0.1}
    indexes = [
        {**made, "index": 1, "kind": "dense", "reused": True},
        {**made, "index": 2, "kind": "sparse", "reused": False},
    ]
    asked: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.path))
        return httpx2.Response(200, json={"corpus": 1, "indexes": indexes})

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    ended = CliRunner().invoke(app, ["corpus", "index", "mine"])
    assert (ended.exit_code, asked) == (0, [("POST", "/v1/corpora/mine/indexes")])
    assert [line.split() for line in ended.stdout.splitlines()] == [
        ["KIND", "INDEX", "DOCUMENTS", "BUILT"], ["dense", "1", "2", "reused"], ["sparse", "2", "2", "0.1", "s"],
    ]  # fmt: skip


def test_the_servers_line_is_the_files_line(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        request.read()
        problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 2: is not JSON", "hint": None}
        return httpx2.Response(422, json=problem)

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(refuse))
    ended = CliRunner().invoke(app, ["corpus", "create", "mine", "--from", str(corpus)])
    assert (ended.exit_code, ended.stderr) == (4, "error: corpus.jsonl, line 3: is not JSON\n")


@pytest.mark.parametrize(("name", "code"), [("nothing.jsonl", 3), ("table.dat", 4)])
def test_a_path_that_cannot_be_read_is_refused_before_anything_is_sent(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "table.dat").touch()
    ended = CliRunner().invoke(app, ["dataset", "create", "mine", "--from", str(tmp_path / name)])
    assert ended.exit_code == code
    assert name in ended.stderr


def answering(monkeypatch: pytest.MonkeyPatch, **made: object) -> list[httpx2.Request]:
    requests = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        requests.append(request)
        usual = {"documents": 1, "items": 1, "skipped": 0, "rejected": 0, "rejected_lines": [], "alternatives": 0}
        return httpx2.Response(201, json=usual | made)

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(answer))
    return requests


def test_a_table_is_sent_as_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = answering(monkeypatch)
    (tmp_path / "t.csv").write_text("id;question\n1;a, b\n")
    ended = CliRunner().invoke(app, ["dataset", "create", "mine", "--from", str(tmp_path / "t.csv")])
    assert (ended.exit_code, requests[0].content) == (0, b'{"id":"1","question":"a, b"}\n')
    assert (requests[0].url.params["format"], requests[0].url.params["on_error"]) == ("jsonl", "reject")


def test_warnings_of_the_server_are_printed_and_columns_that_are_not_known_are_sent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = answering(monkeypatch, warnings=["no item has an expected answer; not read: `anwser`"])
    (tmp_path / "t.csv").write_text("question,anwser\na,1\nb,2\n")
    command = ["dataset", "create", "mine", "--from", str(tmp_path / "t.csv")]
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, ended.stderr) == (0, "warning: no item has an expected answer; not read: `anwser`\n")
    assert requests[0].content == b'{"anwser":null,"question":"a"}\n{"question":"b"}\n'
    as_json = CliRunner().invoke(app, [*command, "--json"])
    assert msgspec.json.decode(as_json.stdout)["warnings"] == ["no item has an expected answer; not read: `anwser`"]


def test_notes_are_cut_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = answering(monkeypatch)
    (tmp_path / "n.md").write_text("# A\nOne is 1. Two is 2. Three is 3.")
    options = ["--chunk-size", "22", "--chunk-overlap", "10"]
    assert CliRunner().invoke(app, ["corpus", "create", "n", "--from", str(tmp_path), *options]).exit_code == 0
    sent = [msgspec.json.decode(line) for line in requests[0].content.splitlines()]
    assert [(line["id"], line["title"], line["text"]) for line in sent] == [
        ("n.md#1", "A", "One is 1. Two is 2."), ("n.md#2", "A", "Two is 2. Three is 3.")
    ]  # fmt: skip


def test_lines_that_were_left_out_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = [{"line": 2, "message": "repeats the id '1' of upload, line 1; rename one"}]
    requests = answering(monkeypatch, rejected=1, rejected_lines=rejected)
    (tmp_path / "t.csv").write_text('id,question\n1,"a\nb"\n2\n1,c\n')
    command = ["dataset", "create", "mine", "--from", str(tmp_path / "t.csv"), "--on-error", "skip"]
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, requests[0].content.count(b"\n")) == (1, 2)
    assert "rejected: t.csv, line 4: has 1 column, but the header has 2" in ended.stderr
    assert "rejected: t.csv, line 5: repeats the id '1' of t.csv, line 2; rename one" in ended.stderr
    assert "2 lines were rejected" in ended.stderr
    as_json = CliRunner().invoke(app, [*command, "--json"])
    made = msgspec.json.decode(as_json.stdout)
    assert (as_json.exit_code, made["rejected"], made["rejected_lines"][0]["source"]) == (1, 2, "t.csv")


def test_all_mistakes_that_the_server_names_are_said(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        request.read()
        hint = "further lines cannot be used: upload, line 2: is not JSON"
        problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 1: is not JSON", "hint": hint}
        return httpx2.Response(422, json=problem)

    monkeypatch.setattr(client.Client, "transport", httpx2.MockTransport(refuse))
    ended = CliRunner().invoke(app, ["corpus", "create", "mine", "--from", str(corpus)])
    assert ended.exit_code == 4
    assert "corpus.jsonl, line 1: is not JSON" in ended.stderr
    assert "corpus.jsonl, line 3: is not JSON" in ended.stderr


def test_several_expected_answers_are_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, alternatives=3)
    (tmp_path / "q.jsonl").write_text('{"question": "?"}\n')
    ended = CliRunner().invoke(app, ["dataset", "create", "mine", "--from", str(tmp_path / "q.jsonl")])
    assert "3 with several expected answers: any of them is right" in ended.stdout
