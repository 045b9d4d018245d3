"""Every error is a problem that names what is wrong and what to do."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from services.orchestrator.app import build
from shared.errors import Invalid
from shared.params import Params
from shared.runtime.parameters import parse_params
from shared.settings import Limits, Settings
from shared.storage import configurations
from shared.storage.configurations import SHIPPED, Configuration

pytestmark = pytest.mark.anyio

JOB = {"name": "a", "dataset": "d", "pipeline": "dense"}


@pytest.fixture
async def api(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    async def holding(_database: object) -> Configuration:
        return SHIPPED

    monkeypatch.setattr(configurations, "load_newest", holding)
    app = build(Settings())
    app.state.deps = SimpleNamespace(settings=Settings(), database=None)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def check(reply: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = reply.json()
    assert (problem["type"], problem["status"]) == (f"urn:mathrag:{kind}", status)
    assert problem["instance"] == reply.request.url.path
    return problem


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"repeets": 2}, "repeets", "there is no such field"),
        ({"repeats": 0}, "repeats", "greater than or equal to 1"),
        ({"reuse": "some"}, "reuse", "'all' or 'none'"),
        ({"dataset": None}, "dataset", "valid string"),
        ({"name": "a b"}, "name", "is not a valid name"),
        ({"models": {"judge": 3}}, "models.judge", "valid string"),
        ({"params": {"candidate": 3}}, "params.candidate", "there is no such field"),
        ({"params": {"gate": {"tua": 0.3}}}, "params.gate.tua", "there is no such field"),
        ({"params": {"gate": {"tau": "x"}}}, "params.gate.tau", "expected `float`"),
        ({"params": {"gate": {"tau": 7}}}, "params.gate.tau", "between -1 and 1"),
        ({"params": {"context_size": 11}}, "params.context_size", "between 0 and 10"),
        ({"params": {"gate": {"on_unusable": "x"}}}, "params.gate.on_unusable", '"fail" or "rules"'),
        ({"params": {"judge": {"max_tokens": 0}}}, "params.judge.max_tokens", "between 1"),
    ],
)
async def test_a_field_that_cannot_be_used_is_named(
    api: httpx2.AsyncClient, change: dict[str, Any], field: str, words: str
) -> None:
    problem = check(await api.post("/v1/jobs", json={**JOB, **change}), 422, "invalid")
    assert problem["field"] == field
    assert problem["detail"].startswith(f"`{field}`: ")
    assert words in problem["detail"]


@pytest.mark.anyio
async def test_an_unknown_parameter_is_answered_with_the_known_ones(api: httpx2.AsyncClient) -> None:
    reply = await api.post("/v1/jobs", json={**JOB, "params": {"gate": {"tua": 0.3}}})
    assert "tau" in check(reply, 422, "invalid")["hint"]


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"{", b"[]", b"", b"\xff"])
async def test_a_body_that_is_no_object_is_refused(api: httpx2.AsyncClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    reply = await api.post("/v1/jobs", content=body, headers=headers)
    assert reply.status_code in (400, 422)
    check(reply, reply.status_code, "bad_request" if reply.status_code == 400 else "invalid")


@pytest.mark.anyio
@pytest.mark.parametrize("value", ["NaN", "Infinity"])
async def test_numbers_that_json_does_not_have_are_refused(api: httpx2.AsyncClient, value: str) -> None:
    body = f'{{"name": "a", "dataset": "d", "pipeline": "p", "params": {{"rrf_weight": {value}}}}}'
    reply = await api.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    check(reply, 422, "invalid")


@pytest.mark.anyio
async def test_a_path_that_does_not_exist_is_a_problem_too(api: httpx2.AsyncClient) -> None:
    assert "GET /v1/nothing" in check(await api.get("/v1/nothing"), 404, "not_found")["detail"]
    refused = await api.delete("/v1/jobs")
    check(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, POST"


@pytest.mark.anyio
async def test_an_unexpected_error_tells_nothing_of_itself(api: httpx2.AsyncClient) -> None:
    problem = check(await api.get("/v1/jobs"), 500, "internal")
    assert "NoneType" not in str(problem)


@pytest.mark.anyio
async def test_a_body_over_the_limit_is_refused_before_it_is_read(api: httpx2.AsyncClient) -> None:
    check(await api.post("/v1/jobs", content=b" " * (Limits().body_bytes + 1)), 413, "too_large")

    async def endless() -> AsyncIterator[bytes]:
        raise AssertionError("was read")
        yield b""

    check(await api.post("/v1/jobs", content=endless()), 413, "too_large")


def test_parameters_left_out_have_their_defaults() -> None:
    assert parse_params({}) == Params()
    assert parse_params({"gate": {"tau": 0.3}}).gate.items == Params().gate.items


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    assert parse_params({"quality_weight": 1}).quality_weight == 1.0


def test_a_parameter_of_another_type_is_named() -> None:
    with pytest.raises(Invalid, match=r"`params\.gate`: expected `object`, got `array`"):
        parse_params({"gate": []})


def test_an_unknown_field_of_a_decoding_is_refused() -> None:
    with pytest.raises(Invalid, match="there is no such field"):
        parse_params({"generate": {"temprature": 1.0}})
