"""Requests with a body: uploads, and what is shown instead of being sent."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.command_groups import LocalCommand
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.dry_run import curl
from mathrag.client.errors import Invalid, NotFound
from mathrag.client.uploads import Progress
from tests.unit.commands import JOB, Server, command_of, mathrag, says
from tests.unit.mathrag.client.both import ADDRESS
from tests.unit.mathrag.client.test_connection import VIEW

pytestmark = pytest.mark.anyio

# Uploads by the clients: what is sent, what a caller learns of it, and of which line of which file.

MADE = {"id": 1, "name": "c", "hash": "1", "documents": 2, "indexed": True, "created_at": "", "skipped": 0,
        "rejected": 0, "rejected_lines": []}  # fmt: skip


async def test_rows_and_files_are_sent_alike(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text":"a"}\n{"text":"b"}\n')
    requests = server(says(MADE, 201))
    rows = ({"text": "a"}, {"text": "b"})
    with Client(ADDRESS) as client:
        client.corpora.create("c", file)
        client.corpora.create("c", str(file))
        client.corpora.create("c", rows)
        client.corpora.create("c", iter(rows))
    async with AsyncClient(ADDRESS) as other:
        assert (await other.corpora.create("c", rows)).documents == 2
    assert {each.content for each in requests} == {file.read_bytes()}


async def test_progress_is_told(server: Server) -> None:
    server(says(MADE, 201))
    said: list[Progress] = []
    with Client(ADDRESS) as client:
        client.corpora.create("c", ({"text": "x" * 10_000} for _ in range(100)), progress=said.append)
    assert [each.lines for each in said] == sorted(each.lines for each in said)
    assert len(said) > 10
    assert (said[-1].lines, said[-1].bytes) == (100, 100 * (len('{"text":""}\n') + 10_000))


async def test_a_problem_names_the_line_of_the_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "corpus.csv"
    file.write_text("text\nno,text\na\nb\n")
    problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 2: no", "line": 2,
               "others": ["upload, line 1: no"]}  # fmt: skip
    server(says(problem, 422))
    with Client(ADDRESS) as client, pytest.raises(Invalid) as raised:
        client.corpora.create("c", file, on_error="skip")
    assert (raised.value.message, raised.value.line) == ("corpus.csv, line 4: no", 4)
    assert raised.value.others == ("corpus.csv, line 3: no",)


async def test_an_answer_names_the_lines_of_the_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "corpus.csv"
    file.write_text("text\nno,text\na\nb\n")
    server(says({**MADE, "rejected": 1, "rejected_lines": [{"line": 2, "message": "is empty"}]}, 201))
    with Client(ADDRESS) as client:
        made = client.corpora.create("c", file, on_error="skip")
    assert made.rejected == 2
    assert [(each.line, each.message.partition(":")[0]) for each in made.rejected_lines] == [
        (2, "corpus.csv"), (4, "corpus.csv"),
    ]  # fmt: skip


async def test_lines_that_nobody_sent_are_no_crash(server: Server) -> None:
    problem = {"type": "urn:mathrag:invalid_line", "detail": "upload, line 9: no", "line": 9}
    server(says(problem, 422))
    with Client(ADDRESS) as client, pytest.raises(Invalid, match="upload, line 9") as raised:
        client.corpora.create("c", [])
    assert raised.value.line == 9


async def test_what_cannot_be_read_is_an_exception_of_the_client(server: Server, tmp_path: Path) -> None:
    server(lambda request: httpx2.Response(500, content=request.read()))
    bad = tmp_path / "bad.csv"
    bad.write_text("question,answer\na,1\nb,2,3\n")
    with Client(ADDRESS) as client:
        with pytest.raises(NotFound, match="nowhere"):
            client.corpora.create("c", tmp_path / "nowhere")
        with pytest.raises(Invalid, match=r"bad\.csv, line 3"):
            client.datasets.create("d", bad)
    async with AsyncClient(ADDRESS) as other:
        with pytest.raises(NotFound, match="nowhere"):
            await other.corpora.create("c", tmp_path / "nowhere")


@pytest.mark.parametrize("row", [{"text": object()}, "text", {1j: "a"}, {"text": "\ud800"}, 5])
async def test_a_row_that_cannot_be_written_is_an_exception(server: Server, row: Any) -> None:
    server(says(MADE, 201))
    with (
        Client(ADDRESS) as client,
        pytest.raises(Invalid, match=r"rows, line 2: the row cannot be written.*dictionary"),
    ):
        client.corpora.create("c", [{"text": "a"}, row])


async def test_a_file_for_a_plugin_is_sent_as_it_is(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "corpus.odd"
    file.write_bytes(b"\x00odd" * 50_000)
    requests = server(says(MADE, 201))
    said: list[Progress] = []
    with Client(ADDRESS) as client:
        client.corpora.create("c", file, reader="odd", progress=said.append)
        with pytest.raises(Invalid, match="the source is rows in memory"):
            client.corpora.create("c", [{"text": "a"}], reader="odd")
    assert (requests[0].content, said[-1].bytes) == (file.read_bytes(), 200_000)
    assert dict(requests[0].url.params) == {"name": "c", "reader": "odd", "skip_empty": "false", "on_error": "reject"}


async def test_chosen_columns_are_named_to_the_server_and_a_field_that_does_not_exist_is_refused(
    server: Server, tmp_path: Path
) -> None:
    requests = server(says(MADE, 201))
    file = tmp_path / "fragen.csv"
    file.write_text("Inhalt;Notiz\na;b\n")
    with Client(ADDRESS) as client:
        client.corpora.create("c", file, columns={"text": "Inhalt"})
        with pytest.raises(Invalid, match="unknown field 'txt'"):
            client.corpora.create("c", file, columns={"txt": "Inhalt"})
    (request,) = requests
    assert request.url.params.get_list("column") == ["text=Inhalt"]
    assert request.content == b'{"Notiz":null,"Inhalt":"a"}\n'


async def test_a_log_of_another_program_is_sent_as_lines(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "intermediate_data.json"
    file.write_text('[{"id": "a", "output": {"pred": "4", "prompt": "long"}}]')
    requests = server(says(VIEW, 202))
    with Client(ADDRESS) as client:
        client.jobs.import_answers("theirs", "d", file, layout="flashrag")
        with pytest.raises(Invalid, match="the source is rows in memory"):
            client.jobs.import_answers("theirs", "d", [{"text": "a"}], layout="flashrag")
    assert json.loads(requests[0].content) == {"id": "a", "text": "4"}
    assert "layout" not in requests[0].url.params


# Requests that are shown and not sent.

SUBMIT = ("job", "submit", "--name", 'it\'s "mine" $HOME', "--dataset", "d", "--pipeline", "dense")
MUTATIONS = {
    "index", "orphans", "submit", "cancel", "pause", "resume", "requeue", "measure", "drain", "release", "retry",
    "generate", "draw",
}  # fmt: skip
NOUNS = ("corpus", "dataset", "job", "sample", "pipeline", "model", "gpu")


@pytest.mark.parametrize("noun", NOUNS)
def test_every_command_that_calls_the_api_can_be_shown_as_curl(noun: str) -> None:
    for name in command_of(noun).commands:
        command = command_of(noun, name)
        if isinstance(command, LocalCommand):
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--print-curl" in options, f"{noun} {name}"
        assert ("--dry-run" in options) == (name in MUTATIONS), f"{noun} {name}"


def test_nothing_is_sent(server: Server) -> None:
    requests = server(says(JOB))
    for option in ("--print-curl", "--dry-run"):
        assert mathrag("job", "cancel", "first", option).exit_code == 0
    assert not requests
    mathrag("job", "cancel", "first")
    assert len(requests) == 1


def test_a_shell_reads_back_what_would_be_sent(server: Server) -> None:
    server(says(JOB))
    words = shlex.split(mathrag(*SUBMIT, "--print-curl").stdout)
    assert words[0] == "curl"
    assert words[words.index("--request") + 1] == "POST"
    assert msgspec.json.decode(words[words.index("--data-raw") + 1])["name"] == 'it\'s "mine" $HOME'
    assert "content-type: application/json" in words
    assert words[-1].endswith("/v1/jobs")


def test_the_key_is_named_and_not_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server(says(JOB))
    monkeypatch.setenv("MATHRAG_API_KEY", "mrg_secret")
    shown = mathrag("job", "show", "first", "--print-curl").stdout
    assert '--header "Authorization: Bearer $MATHRAG_API_KEY"' in shown
    assert "mrg_secret" not in shown
    assert "mrg_secret" not in mathrag("job", "cancel", "first", "--dry-run").stdout


def test_the_key_is_sent_as_a_bearer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = server(says(JOB))
    monkeypatch.setenv("MATHRAG_API_KEY", "mrg_secret")
    assert "mrg_secret" not in mathrag("job", "show", "first").output
    assert requests[0].headers["authorization"] == "Bearer mrg_secret"


def test_a_dry_run_shows_method_address_and_body() -> None:
    shown = msgspec.json.decode(mathrag("gpu", "drain", "cpu:0", "--reason", "driver", "--dry-run").stdout)
    assert (shown["method"], shown["body"]) == ("POST", {"reason": "driver"})
    assert shown["url"].endswith("/v1/gpus/cpu%3A0/drain")


def test_an_export_is_shown_file_by_file(tmp_path: Path) -> None:
    lines = mathrag("job", "export", "first", "--to", str(tmp_path / "out"), "--print-curl").stdout.splitlines()
    outputs = [words[words.index("--output") + 1] for words in map(shlex.split, lines)]
    assert [Path(output).name for output in outputs] == [
        "job.json", "report.json", "results.jsonl", "provenance.jsonl", "audit.json",
    ]  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_an_upload_is_read_from_standard_input() -> None:
    request = httpx2.Request("POST", "http://h/v1/corpora?name=a%20b", content=iter([b"{}\n"]))
    assert shlex.split(curl(request))[-3:] == ["--upload-file", "-", "http://h/v1/corpora?name=a%20b"]


def test_brackets_in_an_address_are_no_pattern() -> None:
    assert "--globoff" in curl(httpx2.Request("GET", "http://[::1]:8080/v1/jobs"))
    assert "--globoff" not in curl(httpx2.Request("GET", "http://h/v1/jobs"))


def test_the_only_device_is_not_looked_up_when_nothing_may_be_sent(server: Server) -> None:
    requests = server(says([{"device": "cpu:0"}]))
    assert "DEVICE" in mathrag("gpu", "drain", "--dry-run").stderr
    assert not requests


def test_every_command_speaks_json() -> None:
    silent = {" ".join(path) for path, command in commands() if "--json" not in command}
    assert silent == {"completion", "demo", "mcp"}


def commands(*path: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    for name in command_of(*path).commands:
        command = command_of(*path, name)
        if hasattr(command, "commands"):
            yield from commands(*path, name)
        else:
            yield (*path, name), {option for parameter in command.params for option in parameter.opts}
