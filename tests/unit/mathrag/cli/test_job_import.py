"""`mathrag job import`: what is sent, and what is said of a file that cannot be used."""

from pathlib import Path

import msgspec
import pytest

from mathrag.cli.output import Exit
from tests.unit.commands import JOB, Server, job, mathrag, refuses, says

TABLE = "qid;prediction\na;1\nb;2\n"
MAPPED = ("--column", "id=qid", "--column", "answer=prediction")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "theirs.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_table_is_sent_as_lines_with_its_mapping(server: Server, table: str) -> None:
    requests = server(says(job("running"), 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED)
    (request,) = requests
    assert (request.method, request.url.path) == ("POST", "/v1/jobs/import")
    assert request.url.params.get_list("column") == ["id=qid", "answer=prediction"]
    assert [msgspec.json.decode(line) for line in request.content.splitlines()] == [
        {"qid": "a", "prediction": "1"}, {"qid": "b", "prediction": "2"},
    ]  # fmt: skip
    assert "job watch 6b0c1e9e" in ended.stdout


def test_a_refused_line_is_named_as_in_the_file(server: Server, table: str) -> None:
    server(refuses(422, "invalid_line", "upload, line 2: no item of the dataset has the id 'b'"))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED)
    assert "theirs.csv, line 3: no item" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--column", "answr=x"), "answr"), (("--column", "id=other"), "the header has no known field")],
)
def test_a_wrong_mapping_is_refused(server: Server, table: str, arguments: tuple[str, ...], said: str) -> None:
    server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *arguments)
    assert (ended.exit_code != Exit.DONE, said in ended.stderr) == (True, True)


def test_an_option_that_a_log_makes_useless_is_refused(server: Server, table: str) -> None:
    requests = server(says(JOB, 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", table, "--layout", "inspect")
    ended = mathrag(*command, "--delimiter", "comma")
    assert ended.exit_code == Exit.INVALID
    assert ("`delimiter` would be ignored" in ended.stderr, requests) == (True, [])


def test_a_file_that_is_not_there_is_said_so(server: Server, tmp_path: Path) -> None:
    requests = server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(tmp_path / "none.csv"))
    assert ("no file" in ended.stderr, requests) == (True, [])


def test_a_log_of_inspect_needs_its_layout(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    log.write_bytes(b"PK\x03\x04")
    server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(log))
    assert "name its layout: inspect" in ended.stderr


def test_samples_that_cannot_be_sent_are_named_and_are_a_finding(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "samples.jsonl"
    rows = [{"doc_id": 0, "resps": [["4"]]}, {"doc_id": 1, "resps": [[["-0.26", "False"]]]}]
    log.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    requests = server(says(job("running"), 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "lm-eval")
    ended = mathrag(*command, "--on-error", "skip")
    assert ended.exit_code == Exit.FINDING
    assert "warning: samples.jsonl, line 2: is of a task that compares likelihoods" in ended.stderr
    assert "job watch" in ended.stdout
    assert [msgspec.json.decode(line)["index"] for line in requests[0].content.splitlines()] == [0]


def test_a_sample_that_failed_in_the_other_system_is_sent_with_its_error(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    failed = {"id": "b", "output": {"choices": []}, "error": {"message": "no route"}}
    log.write_bytes(msgspec.json.encode({"samples": [failed]}))
    requests = server(says({**job("running"), "warnings": ["upload, line 1: has no answer: no route"]}, 202))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "inspect")
    assert "warning: log.json, line 1: has no answer: no route" in mathrag(*command).stderr
    assert msgspec.json.decode(requests[0].content)["error"] == {"message": "no route"}


def test_where_no_sample_holds_an_answer_the_reasons_stand_above_the_error(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "samples.jsonl"
    log.write_bytes(msgspec.json.encode({"doc_id": 1, "resps": [[["-0.26", "False"]]]}))
    server(refuses(422, "invalid", "the upload holds no answers"))
    command = ("job", "import", "theirs", "--dataset", "d", "--from", str(log), "--layout", "lm-eval")
    ended = mathrag(*command, "--on-error", "skip")
    assert ended.exit_code == Exit.INVALID
    reason, error = ended.stderr.splitlines()[:2]
    assert ("compares likelihoods" in reason, error) == (True, "error: the upload holds no answers")


def test_lines_that_the_server_left_out_are_named_as_in_the_file(server: Server, table: str) -> None:
    server(says({**job("running"), "warnings": ["upload, line 2: no item of the dataset has the id 'b'"]}, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED, "--on-error", "skip")
    assert "warning: theirs.csv, line 3: no item" in ended.stderr
