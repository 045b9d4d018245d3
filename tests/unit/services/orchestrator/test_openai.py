"""Lines of a batch: what clients get wrong, by line and field."""

import json
from itertools import product
from typing import Any

import pytest

from services.orchestrator.openai import batch_work
from services.orchestrator.openai.batch_work import Line, LineReader, Stopped
from services.orchestrator.openai.models import NamedModel
from shared.calls import MAX_QUESTION, Decoding
from tests.unit.cases import named

CHAT = "/v1/chat/completions"
MODELS = [NamedModel(id="m", created=0), NamedModel(id="hybrid@docs", created=0, pipeline="hybrid", corpus="docs")]
USER = {"role": "user", "content": "2+2?"}


def line(**changes: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [USER]}
    fields = {"custom_id": "a", "method": "POST", "url": CHAT, "body": body, **changes}
    return {name: value for name, value in fields.items() if value is not None}


def body(**changes: Any) -> dict[str, Any]:
    return line(body={"model": "m", "messages": [USER], **changes})


def read(content: bytes, chunk: int = 1 << 20, longest: int = 1 << 20) -> tuple[LineReader, list[Line]]:
    reader, found = LineReader(CHAT, MODELS, Decoding(), longest), []
    for start in range(0, len(content), chunk):
        found += reader.read(content[start : start + chunk])
    return reader, found + reader.end()


def encoded(*values: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_lines_are_numbered_as_in_the_file_however_it_arrives() -> None:
    wrong = {}
    for chunk, end in product([1, 7, 1 << 20], [b"", b"\n", b"\n\n", b"\r\n"]):
        content = encoded(line())[:-1] + b"\r\n\n" + encoded(line(custom_id="b"))[:-1] + end
        reader, found = named(read, content, chunk)
        said = [(each.number, each.custom_id) for each in found], reader.errors, reader.total
        if said != ([(1, "a"), (3, "b")], [], 2):
            wrong[chunk, end] = said
    assert wrong == {}


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def test_a_line_that_cannot_be_used_is_named_with_its_number_and_field() -> None:
    cases = [
        (b"\xef\xbb\xbf" + encoded(line()), "invalid_json_line", None, "byte order mark"),
        (b"\xff\xfe{\x00", "invalid_json_line", None, "not a JSON"),  # UTF-16
        (b'{"custom_id": "\xff"}', "invalid_json_line", None, "UTF-8"),
        (b'{"custom_id": "a\x00b"}', "invalid_json_line", None, "not a JSON"),
        (b'{"custom_id"', "invalid_json_line", None, "not a JSON"),
        (b'{"custom_id": NaN}', "invalid_json_line", None, "not a JSON"),
        (b'{"body": ' + b'{"a":' * 100_000, "invalid_json_line", None, "recursion"),
        (b"[]", "invalid_request", None, "object"),
        (b'"x"', "invalid_request", None, "object"),
        (encoded(line(custom_id=None)), "invalid_request", None, "custom_id"),
        (encoded(line(custom_id=5)), "invalid_request", None, "custom_id"),
        (encoded(line(custom_id="")), "invalid_request", "custom_id", "1 to 512"),
        (encoded(line(custom_id="a" * 513)), "invalid_request", "custom_id", "1 to 512"),
        (encoded(line(custom_id="a\0")), "invalid_request", "custom_id", "u0000"),
        (encoded(line(custom_id="\ud800")), "invalid_json_line", None, "not a JSON"),
        (encoded(line(custom_id="first")), "duplicate_custom_id", "custom_id", "line 1"),
        (encoded(line(method="GET")), "invalid_request", "method", "POST"),
        (encoded(line(url="/v1/embeddings")), "invalid_request", "url", "endpoint"),
        (encoded(line(url="/openai/v1/chat/completions")), "invalid_request", "url", "endpoint"),
        (encoded(line(extra=1)), "invalid_request", None, "extra"),
        (encoded(line(body=[])), "invalid_request", None, "body"),
        (encoded(body(model="n")), "model_not_found", None, "'n'"),
        (encoded(body(tools=[{"type": "function"}])), "invalid_request", "tools", "list"),
        (encoded(body(min_p=0.5)), "invalid_request", "min_p", "not supported"),
        (encoded(body(stream=True)), "invalid_request", "stream", "batch"),
        (encoded(body(seed=1 << 70)), "invalid_request", "seed", "64 bits"),
        (encoded(body(user="a\0b")), "invalid_request", "user", "u0000"),
        (encoded(body(messages=nested(40))), "invalid_request", "messages", "levels"),
        (encoded(body(model="hybrid@docs", seed=1)), "invalid_request", "seed", "pipeline"),
        (encoded(body(model="hybrid@docs", messages=[USER, USER])), "invalid_request", "messages", "one question"),
        (
            encoded(body(model="hybrid@docs", messages=[{**USER, "content": "x" * (MAX_QUESTION + 1)}])),
            "invalid_request", "messages", "characters",
        ),
    ]  # fmt: skip
    wrong = {}
    for bad, code, param, words in cases:
        content = encoded(line(custom_id="first")) + bad.removesuffix(b"\n") + b"\n" + encoded(line(custom_id="last"))
        reader, found = named(read, content)
        ids = [each.custom_id for each in found]
        errors = [(each.code, each.line, each.param, each.message) for each in reader.errors]
        said = [(*error[:3], words in error[3]) for error in errors]
        if (ids, said) != (["first", "last"], [(code, 2, param, True)]):
            wrong[bad[:60], bad[-60:]] = (ids, errors)
    assert wrong == {}


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n"])
def test_a_file_without_requests_says_so(content: bytes) -> None:
    reader, _ = read(content)
    assert [(each.code, each.line) for each in reader.errors] == [("empty_file", None)]


@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_a_line_that_does_not_end_is_not_kept(chunk: int) -> None:
    for end in (b"", b"\n"):
        with pytest.raises(Stopped) as stopped:
            read(encoded(line()) + b"x" * 5000 + end, chunk, longest=1000)
        assert (stopped.value.error.code, stopped.value.error.line) == ("line_too_long", 2)


def test_one_request_too_many_stops_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_work, "MOST_LINES", 2)
    with pytest.raises(Stopped) as stopped:
        read(encoded(*(line(custom_id=str(n)) for n in range(3))) + b"{")
    assert stopped.value.error.code == "too_many_requests"


def test_only_the_first_errors_are_kept() -> None:
    reader, _ = read(b"{\n" * 150)
    assert (len(reader.errors), reader.wrong) == (100, 150)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (body(temperature=0), body(temperature=1), True),
        (body(model="hybrid@docs", temperature=0), body(model="hybrid@docs", temperature=0.0), True),
        (body(model="hybrid@docs", temperature=0), body(model="hybrid@docs", temperature=1), False),
        (body(), body(model="hybrid@docs"), False),
    ],
)
def test_lines_share_a_job_where_it_has_what_both_ask(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    _, (first, second) = read(encoded(one, {**other, "custom_id": "b"}))
    assert (first.group == second.group) is same
