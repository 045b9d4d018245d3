"""Jobs as objects: waited for, watched, looked into, graded here."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from httpx2 import ServerSentEvent

from mathrag.client import errors, jobs, waiting
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.errors import Failed, Invalid, JobFailed, MissingPackage, NotFound, TimedOut, Unreachable
from mathrag.client.request import Request
from mathrag.client.waiting import RETURN_S, follow_job
from services.orchestrator.api.examples import make_example
from tests.unit.commands import JOB, Handler, Server, job, refuses, says
from tests.unit.mathrag.client.both import ADDRESS, by_both
from tests.unit.mathrag.client.test_connection import BUSY, VIEW, in_turn, lost

REPORT = make_example("Report")
COMPARISON = make_example("Comparison")
SAMPLE = make_example("SampleRow")
RESULT = make_example("ResultRow")

pytestmark = pytest.mark.anyio
ENDED_AT = "2026-11-21T09:00:00Z"
ENDED = says({**VIEW, "state": "completed", "ended_at": ENDED_AT})


async def waited(**options: Any) -> list[Any]:
    async def later(client: AsyncClient) -> Any:
        return await (await client.jobs.get("first")).wait(**options)

    return await by_both(
        lambda client: later(client) if isinstance(client, AsyncClient) else client.jobs.get("first").wait(**options)
    )


async def test_a_job_is_waited_for_over_a_restart(server: Server, slept: list[float]) -> None:
    script = [says(VIEW), lost(httpx2.ConnectError), BUSY, lost(httpx2.ReadError), says(VIEW), ENDED]
    requests = server(in_turn(*script, *script))
    assert [job.state for job in await waited()] == ["completed", "completed"]
    assert {each.url.path for each in requests[1:6]} == {f"/v1/jobs/{VIEW['id']}"}
    assert slept[:4] == sorted(slept[:4])
    assert slept[0] == waiting.FIRST_S


async def test_waiting_ends_when_the_caller_says(server: Server, slept: list[float]) -> None:
    requests = server(says(VIEW))
    for failed in await waited(timeout_s=0):
        assert isinstance(failed, TimedOut | TimeoutError)
        assert "has not ended within 0 s" in str(failed)
    assert requests[1].extensions["timeout"]["read"] <= waiting.FIRST_S


async def test_a_server_that_stays_away_is_given_up(
    server: Server, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10_000, 40))
    monkeypatch.setattr(waiting.Waiting.__init__, "__defaults__", (lambda: float(next(times)),))
    server(in_turn(says(VIEW), lost(httpx2.ConnectError)))
    with Client(ADDRESS) as client, pytest.raises(Unreachable):
        client.jobs.get("first").wait()
    assert next(times) <= RETURN_S + 200


async def test_an_experiment_is_waited_for_over_a_restart(server: Server, slept: list[float]) -> None:
    running = {"id": "1", "name": "grid", "state": "running", "cells": 2, "refused": 0, "created_at": ENDED_AT}
    view = {**running, "request_counts": VIEW["request_counts"], "links": {"self": "/", "report": "/", "jobs": "/"}}
    script = [says(view), BUSY, lost(httpx2.ReadError), says({**view, "state": "completed", "ended_at": ENDED_AT})]
    requests = server(in_turn(*script, *script))
    found = await by_both(lambda client: client.experiments.wait("grid"))
    assert [each.state for each in found] == ["completed", "completed"]
    assert {each.url.path for each in requests} == {"/v1/experiments/grid"}


async def test_a_refusal_ends_the_waiting(server: Server, slept: list[float]) -> None:
    server(in_turn(says(VIEW), refuses(404, "not_found", "no such job")))
    with Client(ADDRESS) as client, pytest.raises(NotFound):
        client.jobs.get("first").wait()


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_job_that_did_not_complete_is_an_exception(server: Server, slept: list[float], state: str) -> None:
    server(says({**VIEW, "state": state, "ended_at": ENDED_AT, "reason": "Traceback\nno model fits"}))
    for failed in await waited():
        assert isinstance(failed, JobFailed)
        assert f"job first did not complete ({state}): no model fits" in str(failed)
    assert [job.state for job in await waited(check=False)] == [state, state]


async def test_a_job_is_watched(server: Server, slept: list[float]) -> None:
    progress = msgspec.json.encode({"request_counts": {**VIEW["request_counts"], "completed": 1}})
    events = b"event: progress\nid: 1\ndata: " + progress + b'\n\nevent: state\nid: 2\ndata: {"version": 2}\n\n'
    looks = iter([says(VIEW), says(VIEW), ENDED] * 2)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/events"):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        return next(looks)(request)

    server(answer)
    seen = [("running", 0), ("running", 1), ("completed", 0)]
    with Client(ADDRESS) as client:
        job = client.jobs.get("first")
        assert [(now.state, now.request_counts.completed) for now in job.watch()] == seen
        assert job.state == "completed"
    async with AsyncClient(ADDRESS) as other:
        awaited = await other.jobs.get("first")
        assert [(now.state, now.request_counts.completed) async for now in awaited.watch()] == seen


async def test_watching_begins_although_the_server_is_away(server: Server, slept: list[float]) -> None:
    script = [says(VIEW), lost(httpx2.ConnectError), BUSY, ENDED]
    server(in_turn(*script, *script))
    with Client(ADDRESS) as client:
        assert [now.state for now in client.jobs.get("first").watch()] == ["completed"]
    async with AsyncClient(ADDRESS) as other:
        awaited = await other.jobs.get("first")
        assert [now.state async for now in awaited.watch()] == ["completed"]


def rows(*marks: tuple[int, bool | None]) -> list[dict[str, Any]]:
    return [{**RESULT, "index": index, "correct": correct} for index, correct in marks]


def as_parquet(results: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(results), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def api(results: list[dict[str, Any]], listed: list[dict[str, Any]] | None = None) -> Handler:
    pages = [SAMPLE] if listed is None else listed

    def answer(request: httpx2.Request) -> httpx2.Response:
        path, query = request.url.path, request.url.params
        if path.endswith("/results") and query["format"] == "parquet":
            return httpx2.Response(200, content=as_parquet(results))
        if path.endswith("/results"):
            return httpx2.Response(200, content=b"".join(msgspec.json.encode(row) + b"\n" for row in results))
        if path.endswith("/samples"):
            first = "cursor" not in query
            page = {"data": pages[:1] if first else pages[1:], "next_cursor": "more" if first else None}
            return httpx2.Response(200, json=page)
        if path.endswith("/report"):
            return httpx2.Response(200, json=REPORT)
        return ENDED(request)

    return answer


async def test_samples_are_iterated_over_page_by_page(server: Server) -> None:
    requests = server(api([], [SAMPLE, {**SAMPLE, "index": 1}]))
    with Client(ADDRESS) as client:
        assert [each.index for each in client.jobs.get("first").samples(wrong=True, state="completed")] == [0, 1]
    asked = [dict(each.url.params) for each in requests if each.url.path.endswith("/samples")]
    assert asked == [
        {"limit": "500", "wrong": "true", "state": "completed"},
        {"limit": "500", "wrong": "true", "state": "completed", "cursor": "more"},
    ]


async def test_samples_are_tables(server: Server) -> None:
    server(api(rows((0, True), (1, False)), [SAMPLE]))
    with Client(ADDRESS) as client:
        job = client.jobs.get("first")
        assert job.samples().to_arrow()["correct"].to_pylist() == [True, False]
        frame = job.samples(correct=True).to_pandas()
        assert list(frame["index"]) == [0]
    async with AsyncClient(ADDRESS) as other:
        awaited = await other.jobs.get("first")
        assert (await awaited.samples(correct=True).to_arrow()).num_rows == 1
        assert len(await awaited.samples().to_pandas()) == 2


async def test_samples_are_a_table_of_polars(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Polars:
        @staticmethod
        def from_arrow(table: Any) -> tuple[str, int]:
            return "polars", table.num_rows

    loaded = errors.import_module
    monkeypatch.setattr(errors, "import_module", lambda name: Polars if name == "polars" else loaded(name))
    server(api(rows((0, True))))
    with Client(ADDRESS) as client:
        assert client.jobs.get("first").samples().to_polars() == ("polars", 1)  # type: ignore[comparison-overlap]
    async with AsyncClient(ADDRESS) as other:
        assert await (await other.jobs.get("first")).samples().to_polars() == ("polars", 1)  # type: ignore[comparison-overlap]


TABLES = {"to_arrow": "pyarrow", "to_pandas": "pandas", "to_polars": "polars"}


@pytest.mark.parametrize("method", TABLES)
async def test_a_package_that_is_missing_is_named(server: Server, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    loaded = errors.import_module

    def load(name: str) -> Any:
        if name == TABLES[method]:
            raise ImportError(name)
        return loaded(name)

    monkeypatch.setattr(errors, "import_module", load)
    requests = server(api([]))
    with Client(ADDRESS) as client:
        samples = client.jobs.get("first").samples()
        with pytest.raises(MissingPackage, match=rf"`{method}` needs {TABLES[method]}, .* -m pip install .*\[frames\]"):
            getattr(samples, method)()
    assert len(requests) == 1


MARKS = ((0, True), (1, False), (2, True), (3, None))


@pytest.mark.parametrize(
    ("grader", "value", "disagreements", "undecided"),
    [
        (lambda row: row.index < 2, 0.5, [1, 2], 0),
        (lambda row: None if row.index == 3 else row.correct, 2 / 3, [], 1),
        (lambda row: 0.25, 0.25, [0, 2], 0),
        (lambda row: None, None, [], 4),
    ],
    ids=["right or wrong", "undecided", "in parts", "nothing"],
)
async def test_answers_are_graded_here(
    server: Server, grader: Callable[[Any], Any], value: float | None, disagreements: list[int], undecided: int
) -> None:
    requests = server(api(rows(*MARKS)))
    with Client(ADDRESS) as client:
        grades = client.jobs.get("first").grade(grader)
    assert grades.accuracy.value == pytest.approx(value) if value is not None else grades.accuracy.value is None
    assert 0 <= grades.accuracy.low <= (value or 0) <= grades.accuracy.high <= 1
    assert [each.index for each in grades.disagreements] == disagreements
    assert grades.undecided == undecided
    assert {each.method for each in requests} == {"GET"}
    assert str(grades)


async def test_repeats_of_an_item_are_one_observation(server: Server) -> None:
    repeats = [{**row, "repeat": repeat} for row in rows((0, True), (1, False)) for repeat in range(10)]
    found = []
    for results in (rows((0, True), (1, False)), repeats):
        server(api(results))
        with Client(ADDRESS) as client:
            found.append(client.jobs.get("first").grade(lambda row: bool(row.correct)))
    assert found[0].accuracy == found[1].accuracy
    assert [each.items for each in found] == [2, 2]


@pytest.mark.parametrize("said", ["yes", 1.5, -0.1, float("nan"), object()])
async def test_a_verdict_that_is_none_is_refused(server: Server, said: Any) -> None:
    server(api(rows((7, True))))
    with Client(ADDRESS) as client, pytest.raises(Invalid, match=r"sample 7.*return True, False"):
        client.jobs.get("first").grade(lambda _: said)


async def test_an_error_of_the_grader_says_where(server: Server) -> None:
    server(api(rows((7, True))))
    with Client(ADDRESS) as client, pytest.raises(ZeroDivisionError) as raised:
        client.jobs.get("first").grade(lambda _: 1 / 0)
    assert raised.value.__notes__ == ["while grading sample 7, repeat 0"]


async def test_failed_samples_are_not_graded(server: Server) -> None:
    server(api([{**RESULT, "state": "failed", "answer": None}]))
    with Client(ADDRESS) as client:
        assert client.jobs.get("first").grade(lambda _: True).accuracy.value is None


async def test_a_report_is_shown_in_a_notebook(server: Server) -> None:
    script = "<script>alert(1)</script>"
    example = {**REPORT, "name": script, "notes": [script], "by_subject": {
        script: REPORT["accuracy"], "b": REPORT["accuracy"]}}  # fmt: skip
    server(in_turn(ENDED, says(example)))
    with Client(ADDRESS) as client:
        job = client.jobs.get("first")
        report = job.report()
    shown = report._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 3
    assert dict(report.lines())["accuracy"] in shown
    assert "accuracy" in str(report)


async def test_a_job_is_shown_in_a_notebook(server: Server) -> None:
    server(says({**VIEW, "name": "<b>"}))
    with Client(ADDRESS) as client:
        assert "&lt;b&gt;" in client.jobs.get("first")._repr_html_()


async def test_a_job_is_changed(server: Server) -> None:
    requests = server(in_turn(says(VIEW), says({**VIEW, "name": "second", "state": "paused"})))
    with Client(ADDRESS) as client:
        job = client.jobs.get("first")
        assert (job.change(name="second").name, job.pause().state) == ("second", "paused")
        assert job.requeue().id == job.id
    assert [each.method for each in requests] == ["GET", "PATCH", "POST", "POST"]
    assert requests[1].content == b'{"name":"second"}'


async def test_a_job_is_measured(server: Server) -> None:
    requests = server(says(VIEW))
    metrics, models = ["faithfulness"], {"judge": "large"}
    with Client(ADDRESS) as client:
        job = client.jobs.get("first")
        assert job.measure(metrics, name="mine", models=models).id == job.id
        assert client.jobs.measure(job, metrics, params={"metrics": {"unit": "claims"}}).id == job.id
    async with AsyncClient(ADDRESS) as asynchronous:
        await (await asynchronous.jobs.get("first")).measure(metrics)
        await asynchronous.jobs.measure("first", metrics)
    sent = [request for request in requests if request.method == "POST"]
    assert [request.url.path for request in sent] == [
        *[f"/v1/jobs/{VIEW['id']}/measure"] * 3, "/v1/jobs/first/measure",
    ]  # fmt: skip
    bodies = [msgspec.json.decode(request.content) for request in sent]
    plain = {"params": {"metrics": {"names": metrics}}, "models": {}}
    claims = {"params": {"metrics": {"unit": "claims", "names": metrics}}, "models": {}}
    assert bodies == [{"name": "mine", **plain, "models": models}, claims, plain, plain]


async def test_jobs_are_compared_as_they_are(server: Server) -> None:
    requests = server(in_turn(says(VIEW), says(COMPARISON)))
    with Client(ADDRESS) as client:
        assert client.comparisons.compare([client.jobs.get("first"), "second"]).finding == COMPARISON["finding"]
    assert requests[1].url.params.get_list("job") == [VIEW["id"], "second"]


async def test_a_comparison_waits_for_its_jobs(server: Server, slept: list[float]) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/comparison":
            return says(COMPARISON)(request)
        return (ENDED if len(slept) > 2 else says(VIEW))(request)

    requests = server(answer)
    for found in await by_both(lambda client: client.compare("first", "second", baseline="third", measure="exact")):
        assert found.finding == COMPARISON["finding"]
    query = [("job", "first"), ("job", "second"), ("baseline", "third"), ("measure", "exact")]
    assert requests[-1].url.params.multi_items() == query
    assert len(slept) == 3


async def test_a_failed_job_is_not_compared(server: Server) -> None:
    requests = server(says({**VIEW, "state": "failed", "ended_at": ENDED_AT, "reason": "no memory"}))
    for failed in await by_both(lambda client: client.compare("first", "second")):
        assert isinstance(failed, JobFailed)
        assert "no memory" in failed.message
    assert {each.url.path for each in requests} == {"/v1/jobs/first"}


async def test_a_comparison_is_printed_and_shown_in_a_notebook(server: Server) -> None:
    script = "<script>alert(1)</script>"
    jobs = [{**COMPARISON["jobs"][0], "name": script}, *COMPARISON["jobs"][1:]]
    server(says({**COMPARISON, "jobs": jobs, "notes": [script]}))
    with Client(ADDRESS) as client:
        found = client.comparisons.compare(["gate", "dense"])
        shown = found._repr_html_()
    finding, head, first, second, pair, *_, note = str(found).splitlines()
    assert (finding, head) == (f"{COMPARISON['finding']}.", "Accuracy with 95 % intervals:")
    assert first == f"  {script}  61.2 % (56.9 to 65.4), 306 of 500"
    assert second.index("62.0 %") == first.index("61.2 %")
    assert pair.startswith("  gate against dense: not separable at n = 500: +0.8 points (")
    assert note == f"  note: {script}"
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 2
    assert COMPARISON["pairs"][0]["words"] in shown


async def test_a_comparison_by_another_measure_shows_its_values(server: Server) -> None:
    server(says({**COMPARISON, "measure": "answer@5"}))
    with Client(ADDRESS) as client:
        lines = str(client.comparisons.compare(["gate", "dense"], measure="answer@5")).splitlines()
    assert lines[1] == "Answer@5 with 95 % intervals:"
    assert lines[2].endswith(", 500 items")


class _BreaksOff(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"item"
        raise httpx2.ReadError("lost")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"item"
        raise httpx2.ReadError("lost")


@pytest.mark.parametrize(
    ("name", "format"), [("a.csv", "csv"), ("a.JSONL", "jsonl"), ("a.parquet", "parquet"), ("a", "parquet")]
)
def test_results_are_saved_in_the_format_of_the_name(server: Server, tmp_path: Path, name: str, format: str) -> None:  # noqa: A002
    requests = server(in_turn(says(VIEW), says({})))
    with Client(ADDRESS) as client:
        client.jobs.get("first").save_results(tmp_path / name)
    assert requests[-1].url.params["format"] == format


@pytest.mark.parametrize("client_type", [Client, AsyncClient])
async def test_results_that_break_off_are_fetched_again(
    server: Server, slept: list[float], tmp_path: Path, client_type: type[Any]
) -> None:
    broken, whole = httpx2.Response(200, stream=_BreaksOff()), httpx2.Response(200, content=b"item\n1\n")
    server(in_turn(says(VIEW), BUSY, lambda _: broken, lambda _: whole))
    file = tmp_path / "results.csv"
    client = client_type(ADDRESS)
    if isinstance(client, AsyncClient):
        await (await client.jobs.get("first")).save_results(file, format="csv")
        await client.close()
    else:
        client.jobs.get("first").save_results(file, format="csv")
        client.close()
    assert _contents(tmp_path) == {file.name: b"item\n1\n"}
    assert len(slept) == 2


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# Following a job: by its events, over cuts, and by looking where there are none.


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
