"""`mathrag job import`: what is sent, and what is said of a file that cannot be used."""

from pathlib import Path

import msgspec
import pytest

from mathrag.cli.failures import Exit
from tests.unit.commands import JOB, Server, job, mathrag, refuses, says

TABLE = "qid;prediction\na;1\nb;2\n"
MAPPED = ("--column", "id=qid", "--column", "answer=prediction")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table with names of its own."""
    path = tmp_path / "theirs.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_table_is_sent_as_lines_with_its_mapping(server: Server, table: str) -> None:
    """And the next command is named."""
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
    """Below the header, which is line 1."""
    server(refuses(422, "invalid_line", "upload, line 2: no item of the dataset has the id 'b'"))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *MAPPED)
    assert "theirs.csv, line 3: no item" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--column", "answr=x"), "answr"), (("--column", "id=other"), "the header names no field")],
)
def test_a_wrong_mapping_is_refused(server: Server, table: str, arguments: tuple[str, ...], said: str) -> None:
    """Before a job is made."""
    server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", table, *arguments)
    assert (ended.exit_code != Exit.DONE, said in ended.stderr) == (True, True)


def test_a_file_that_is_not_there_is_said_so(server: Server, tmp_path: Path) -> None:
    """With its path."""
    requests = server(says(JOB, 202))
    ended = mathrag("job", "import", "theirs", "--dataset", "d", "--from", str(tmp_path / "none.csv"))
    assert ("no file" in ended.stderr, requests) == (True, [])
