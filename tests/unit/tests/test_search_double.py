"""The double of Elasticsearch says what a real one was recorded to say, and still says where one runs.

`tests/doubles/elasticsearch_recorder.py` makes the recording. The double may leave out what the project does not read;
everything that it says must be in the real answer, with the same value.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from shared.settings import REPOSITORY
from tests.doubles.search_server import search_server

pytestmark = pytest.mark.anyio

SEARCHES_RECORDED = REPOSITORY / "tests" / "recorded" / "elasticsearch-9.5.3.jsonl"
RECOVERING = "while it recovers"
VOLATILE = ("took",)
MADE = re.compile(r"/[\w-]{22}(?=\])|^\[\d+:\d+\] ")
"""In a message: an index's id behind its name, and the position in a document's JSON."""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


def searches() -> Iterator[dict[str, Any]]:
    return map(json.loads, SEARCHES_RECORDED.read_text("utf-8").splitlines()[1:])


def send(url: str, request: dict[str, Any]) -> Reply:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request(request["method"], request["target"], request["body"].encode(), request["headers"])
    answer = connection.getresponse()
    headers = {name: value for name in ("content-type", "x-elastic-product") if (value := answer.headers[name])}
    reply = Reply(answer.status, headers, json.loads(answer.read()))
    connection.close()
    return reply


def reply_differences(said: Any, real: Any, where: str = "") -> list[str]:
    if isinstance(said, dict) and isinstance(real, dict):
        unknown = [f"{where}.{name} is not in the real reply" for name in said.keys() - real.keys()]
        common = [name for name in said if name in real and name not in VOLATILE]
        return unknown + [each for name in common for each in reply_differences(said[name], real[name], f"{where}.{name}")]
    if isinstance(said, list) and isinstance(real, list) and len(said) == len(real):
        pairs = enumerate(zip(said, real, strict=True))
        return [each for at, (left, right) in pairs for each in reply_differences(left, right, f"{where}[{at}]")]
    return [] if same(said, real) else [f"{where} is {said!r}, and really {real!r}"]


def same(said: Any, real: Any) -> bool:
    if isinstance(said, float) and isinstance(real, float):
        return math.isclose(said, real, rel_tol=1e-5)
    if isinstance(said, str) and isinstance(real, str):
        return MADE.sub("", said) == MADE.sub("", real)
    return bool(said == real)


def compare(exchange: dict[str, Any], said: Reply, real: Reply) -> list[str]:
    if exchange["request"]["target"] == "/":  # answered by the node's own page, whose media type is another one
        said.headers["content-type"] = real.headers["content-type"]
    where = f"{exchange['name']}: {exchange['request']['method']} {exchange['request']['target'][:60]}"
    return reply_differences(said._asdict(), real._asdict(), where)


def test_the_double_answers_as_the_recorded_server() -> None:
    with search_server() as double:
        found = []
        for exchange in searches():
            double.recovering = exchange["name"] == RECOVERING
            found += compare(exchange, send(double.url, exchange["request"]), Reply(**exchange["response"]))
    assert found == []


@pytest.mark.skipif("ELASTICSEARCH_URL" not in os.environ, reason="ELASTICSEARCH_URL names no server")
def test_the_double_answers_as_the_server_that_runs() -> None:
    real = os.environ["ELASTICSEARCH_URL"]
    with search_server() as double:
        asked = [exchange["request"] for exchange in searches() if exchange["name"] != RECOVERING]
        made = {request["target"].split("?")[0] for request in asked if request["method"] == "PUT"}
        found = []
        for exchange in (each for each in searches() if each["name"] != RECOVERING):
            found += compare(exchange, send(double.url, exchange["request"]), send(real, exchange["request"]))
        for target in made:
            send(real, {"method": "DELETE", "target": target, "body": "", "headers": {}})
    assert found == []


def test_the_recording_says_what_it_is() -> None:
    text = SEARCHES_RECORDED.read_text("utf-8")
    assert json.loads(text.splitlines()[0]) == {"server": "Elasticsearch", "version": "9.5.3", "recorded": "2026-11-22"}
    assert not re.search(r"localhost|127\.0\.0\.1|/home|/tmp|/usr", text)
