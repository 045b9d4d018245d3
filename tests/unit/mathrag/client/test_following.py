"""Following a job: by its events, over cuts, and by looking where there are none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from httpx2 import ServerSentEvent

from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request
from mathrag.client.waiting import RETURN_S, follow_job
from tests.unit.commands import JOB, Server, job

pytestmark = pytest.mark.anyio


class Api:
    def __init__(self, found: list[Any], streams: list[Any]) -> None:
        self.found = iter(found)
        self.streams = iter(streams)
        self.asked: list[str] = []
        self.last: list[str | None] = []

    def send(self, request: Request[Any]) -> Any:
        self.asked.append(request.path)
        return _said(next(self.found))

    @contextmanager
    def events(self, request: Request[bytes]) -> Iterator[Iterator[ServerSentEvent]]:
        self.last.append(request.headers.get("last-event-id"))
        yield (_said(entry) for entry in _said(next(self.streams)))


def _said(entry: Any) -> Any:
    if isinstance(entry, Failed):
        raise entry
    return entry


AWAY = Failed("unreachable", "away")
NONE = Failed("not_found", "no such route")
STATE = ServerSentEvent(event="state", data='{"version":2}', id="2")
PROGRESS = ServerSentEvent(event="progress", data='{"stages":{"judge":{"done":1,"total":2}}}', id="3")


def followed(api: Api, *times: float) -> list[Any]:
    clock = iter(times)
    return list(follow_job(api, "first", lambda _: None, lambda: next(clock, 0.0)))  # type: ignore[arg-type]


def test_progress_is_told_and_not_asked_for() -> None:
    api = Api([job("running"), job("completed")], [[PROGRESS, STATE]])
    states = [(found["state"], found["stages"]) for found in followed(api)]
    assert states == [("running", {}), ("running", {"judge": {"done": 1, "total": 2}}), ("completed", {})]
    assert len(api.asked) == 2


def test_a_job_is_followed_by_its_id() -> None:
    api = Api([job("running"), job("completed")], [[STATE]])
    followed(api)
    assert api.asked == ["/v1/jobs/first", f"/v1/jobs/{JOB['id']}"]


def test_after_a_cut_the_stream_goes_on_where_it_was() -> None:
    api = Api([job("running"), job("running", 1), job("completed")], [[PROGRESS, AWAY], [STATE]])
    assert [found["state"] for found in followed(api)] == ["running", "running", "running", "completed"]
    assert api.last == [None, "3"]


@pytest.mark.parametrize("refusal", [NONE, Failed("too_many", "streams"), Failed("not_implemented", "no")])
def test_without_a_stream_it_looks(refusal: Failed) -> None:
    api = Api([job("running"), job("running", 1), job("completed", 2)], [refusal])
    assert [found["state"] for found in followed(api)] == ["running", "running", "completed"]
    assert len(api.last) == 1


def test_a_server_that_is_started_again_is_waited_for() -> None:
    api = Api([job("running"), AWAY, job("running"), job("completed")], [AWAY, [STATE]])
    assert [found["state"] for found in followed(api)] == ["running", "running", "completed"]


def test_a_stream_that_stays_away_is_given_up() -> None:
    api = Api([job("running"), AWAY, AWAY], [AWAY])
    with pytest.raises(Failed, match="away"):
        followed(api, 0.0, 30.0, 59.0, RETURN_S + 1)


def test_a_server_that_never_was_there_is_said_at_once() -> None:
    with pytest.raises(Failed, match="away"):
        followed(Api([AWAY], []))


def test_a_refusal_ends_the_following() -> None:
    with pytest.raises(Failed, match="revoked"):
        followed(Api([job("running")], [[Failed("unauthorized", "revoked")]]))


def test_a_job_that_has_ended_is_not_followed() -> None:
    assert len(followed(Api([job("failed")], []))) == 1


def test_a_stream_is_read_however_it_is_cut(server: Server) -> None:
    said = b': ping\n\nid: 1\nevent: state\ndata: {"a":1}\n\ndata: {}\n\n'
    pieces = {"content-type": "text/event-stream"}
    server(lambda _: httpx2.Response(200, headers=pieces, content=(bytes([byte]) for byte in said)))
    with Client() as client, client.events(jobs.events("first", None)) as events:
        found = [(event.id, event.event, event.data) for event in events]
    assert found == [("1", "state", '{"a":1}'), ("1", "message", "{}")]


def test_after_204_instead_of_a_stream_the_job_is_looked_at(server: Server) -> None:
    looks = iter([job("running"), job("completed")])
    server(
        lambda asked: (
            httpx2.Response(204) if asked.url.path.endswith("/events") else httpx2.Response(200, json=next(looks))
        )
    )
    with Client() as client:
        found = list(follow_job(client, "first", lambda _: None))
    assert [each["state"] for each in found] == ["running", "completed"]
