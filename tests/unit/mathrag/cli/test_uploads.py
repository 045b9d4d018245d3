"""Uploads from the command line: streamed from disk, and errors said in terms of the file."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from mathrag.cli.progress import SilentUpload, choose_upload_view
from mathrag.cli.progress_bars import UploadBar
from mathrag.client.uploads import Sources
from mathrag.reading import paths
from tests.unit.commands import Handler, Server, mathrag, refuses, says


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


def test_a_corpus_is_sent_line_by_line(corpus: Path, server: Server) -> None:
    requests = server(says({"documents": 2, "skipped": 0, "rejected": 0, "rejected_lines": []}, 201))
    ended = mathrag("corpus", "create", "mine", "--from", str(corpus))
    assert (ended.exit_code, "corpus mine: 2 documents, indexed" in ended.stdout) == (0, True)
    assert requests[0].headers["transfer-encoding"] == "chunked"
    assert requests[0].content == b'{"text": "a"}\n{"text": "b"}\n'
    assert requests[0].url.params["name"] == "mine"


def test_indexes_are_built_again(server: Server) -> None:
    made = {"signature": "ab", "documents": 2, "seconds": 0.1}
    indexes = [
        {**made, "index": 1, "kind": "dense", "reused": True},
        {**made, "index": 2, "kind": "sparse", "reused": False},
    ]
    asked = server(says({"corpus": 1, "indexes": indexes}))
    ended = mathrag("corpus", "index", "mine")
    assert (ended.exit_code, [(each.method, each.url.path) for each in asked]) == (
        0, [("POST", "/v1/corpora/mine/indexes")],
    )  # fmt: skip
    assert [line.split() for line in ended.stdout.splitlines()] == [
        ["KIND", "INDEX", "DOCUMENTS", "BUILT"], ["dense", "1", "2", "reused"], ["sparse", "2", "2", "0.1", "s"],
    ]  # fmt: skip


def test_a_corpus_shows_how_far_its_indexes_are(server: Server) -> None:
    builds = [{"kind": "dense", "documents": 3000}, {"kind": "sparse", "documents": None}]
    server(says({"name": "mine", "documents": 7500, "hash": "ab", "created_at": "2026-11-30", "builds": builds}))
    shown = " ".join(mathrag("corpus", "show", "mine").stdout.split())
    assert "building dense 3,000 of 7,500 documents" in shown
    assert "building sparse waits for other builds" in shown


def test_the_servers_line_is_the_files_line(corpus: Path, server: Server) -> None:
    server(refuses(422, "invalid_line", "upload, line 2: is not JSON"))
    ended = mathrag("corpus", "create", "mine", "--from", str(corpus))
    assert (ended.exit_code, ended.stderr) == (4, "error: corpus.jsonl, line 3: is not JSON\n")


@pytest.mark.parametrize(("name", "code"), [("nothing.jsonl", 3), ("table.dat", 4)])
def test_a_path_that_cannot_be_read_is_refused_before_anything_is_sent(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "table.dat").touch()
    ended = mathrag("dataset", "create", "mine", "--from", str(tmp_path / name))
    assert ended.exit_code == code
    assert name in ended.stderr


def storing(**made: object) -> Handler:
    usual = {"documents": 1, "items": 1, "skipped": 0, "rejected": 0, "rejected_lines": [], "alternatives": 0}
    return says(usual | made, 201)


def test_a_table_is_sent_as_json_lines(tmp_path: Path, server: Server) -> None:
    requests = server(storing())
    (tmp_path / "t.csv").write_text("id;question\n1;a, b\n")
    ended = mathrag("dataset", "create", "mine", "--from", str(tmp_path / "t.csv"))
    assert (ended.exit_code, requests[0].content) == (0, b'{"id":"1","question":"a, b"}\n')
    assert (requests[0].url.params["format"], requests[0].url.params["on_error"]) == ("jsonl", "reject")


def test_warnings_of_the_server_are_printed_and_columns_that_are_not_known_are_sent_once(
    tmp_path: Path, server: Server
) -> None:
    requests = server(storing(warnings=["no item has an expected answer; not read: `anwser`"]))
    (tmp_path / "t.csv").write_text("question,anwser\na,1\nb,2\n")
    command = ["dataset", "create", "mine", "--from", str(tmp_path / "t.csv")]
    ended = mathrag(*command)
    assert (ended.exit_code, ended.stderr) == (0, "warning: no item has an expected answer; not read: `anwser`\n")
    assert requests[0].content == b'{"anwser":null,"question":"a"}\n{"question":"b"}\n'
    as_json = mathrag(*command, "--json")
    assert msgspec.json.decode(as_json.stdout)["warnings"] == ["no item has an expected answer; not read: `anwser`"]


def test_notes_are_cut_as_asked(tmp_path: Path, server: Server) -> None:
    requests = server(storing())
    (tmp_path / "n.md").write_text("# A\nOne is 1. Two is 2. Three is 3.")
    options = ["--chunk-size", "22", "--chunk-overlap", "10"]
    assert mathrag("corpus", "create", "n", "--from", str(tmp_path), *options).exit_code == 0
    sent = [msgspec.json.decode(line) for line in requests[0].content.splitlines()]
    assert [(line["id"], line["title"], line["text"]) for line in sent] == [
        ("n.md, A", "A", "One is 1. Two is 2."), ("n.md, A (2)", "A", "Two is 2. Three is 3.")
    ]  # fmt: skip


def test_lines_that_were_left_out_are_a_finding(tmp_path: Path, server: Server) -> None:
    rejected = [{"line": 2, "message": "repeats the id '1' of upload, line 1; rename one"}]
    requests = server(storing(rejected=1, rejected_lines=rejected))
    (tmp_path / "t.csv").write_text('id,question\n1,"a\nb"\n2\n1,c\n')
    command = ["dataset", "create", "mine", "--from", str(tmp_path / "t.csv"), "--on-error", "skip"]
    ended = mathrag(*command)
    assert (ended.exit_code, requests[0].content.count(b"\n")) == (1, 2)
    assert "rejected: t.csv, line 4: has 1 column, but the header has 2" in ended.stderr
    assert "rejected: t.csv, line 5: repeats the id '1' of t.csv, line 2; rename one" in ended.stderr
    assert "2 lines were rejected" in ended.stderr
    as_json = mathrag(*command, "--json")
    made = msgspec.json.decode(as_json.stdout)
    assert (as_json.exit_code, made["rejected"], made["rejected_lines"][0]["source"]) == (1, 2, "t.csv")


def test_all_mistakes_that_the_server_names_are_said_before_the_fix(corpus: Path, server: Server) -> None:
    others = [f"upload, line {number}: is not JSON" for number in range(2, 8)]
    problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 1: is not JSON", "hint": "leave them out"}
    server(says({**problem, "others": others}, 422))
    ended = mathrag("corpus", "create", "mine", "--from", str(corpus))
    assert ended.exit_code == 4
    assert ended.stderr.splitlines() == [
        "error: corpus.jsonl, line 1: is not JSON",
        *(f"  also: corpus.jsonl, line {number}: is not JSON" for number in range(3, 7)),
        "  also: 2 more",
        "  fix: leave them out",
    ]


def test_chosen_columns_are_read_here_and_named_to_the_server(tmp_path: Path, server: Server) -> None:
    requests = server(storing())
    (tmp_path / "t.csv").write_bytes("\ufeffFrage;Antwort\r\n2+2?;4\r\n".encode())
    chosen = ["--column", "question=Frage", "--column", "gold=Antwort"]
    ended = mathrag("dataset", "create", "mine", "--from", str(tmp_path / "t.csv"), *chosen)
    assert (ended.exit_code, requests[0].content) == (0, b'{"Frage":"2+2?","Antwort":"4"}\n')
    assert requests[0].url.params.get_list("column") == ["question=Frage", "gold=Antwort"]
    wrong = mathrag("corpus", "create", "mine", "--from", str(tmp_path / "t.csv"), "--column", "txt=Frage")
    assert (wrong.exit_code, len(requests)) == (4, 1)
    assert wrong.stderr.startswith("error: `column`: unknown field 'txt'\n  fix: did you mean 'text'?")


def test_an_array_is_sent_as_json_lines(tmp_path: Path, server: Server) -> None:
    requests = server(storing())
    (tmp_path / "a.json").write_text('[\n {"question": "a",\n  "answer": "1"},\n {"question": "b"}\n]\n')
    assert mathrag("dataset", "create", "mine", "--from", str(tmp_path / "a.json")).exit_code == 0
    assert requests[0].content == b'{"question":"a","answer":"1"}\n{"question": "b"}\n'


def test_a_path_that_is_misspelt_is_told_with_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    ended = mathrag("corpus", "create", "mine", "--from", str(tmp_path / "nots"))
    assert (ended.exit_code, f"fix: did you mean '{tmp_path / 'notes'}'?" in ended.stderr) == (3, True)


def test_progress_is_shown_on_a_terminal_only_and_never_with_json(corpus: Path) -> None:
    sources = Sources(paths.corpus_lines(corpus))
    console = Console(force_terminal=True, file=io.StringIO(), width=80)
    with UploadBar(console, "documents", "indexing") as bar:
        list(bar.follow(sources))
    assert sources.sent == 2
    assert "indexing 2 documents" in console.file.getvalue()  # type: ignore[attr-defined]
    for as_json in (True, False):  # standard error is no terminal here
        assert type(choose_upload_view("documents", "indexing", as_json=as_json)) is SilentUpload


def test_several_expected_answers_are_mentioned(tmp_path: Path, server: Server) -> None:
    server(storing(alternatives=3))
    (tmp_path / "q.jsonl").write_text('{"question": "?"}\n')
    ended = mathrag("dataset", "create", "mine", "--from", str(tmp_path / "q.jsonl"))
    assert "3 with several expected answers, each of which is right" in ended.stdout


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path, server: Server) -> None:
    server(storing())
    for name in ("n.md", "i.png", "j.png"):
        (tmp_path / name).write_text("x")
    ended = mathrag("corpus", "create", "n", "--from", str(tmp_path))
    assert (ended.exit_code, ended.stderr) == (0, "warning: 2 files have suffixes that are not read: i.png, j.png\n")
