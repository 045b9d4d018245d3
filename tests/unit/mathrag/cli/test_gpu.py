"""Devices, models and pipelines on the command line."""

import httpx2
import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.gpus import DRAINED, QUARANTINED
from tests.unit.commands import Server, mathrag, says

EXAMPLE = make_example("DeviceView")


def test_a_device_is_shown_with_what_it_holds_and_why(server: Server) -> None:
    server(says([EXAMPLE]))
    shown = mathrag("gpu").stdout
    assert "cpu:0: open" in shown
    assert "96 declared, 41.5 measured, of 160" in shown
    assert "open, epoch 12, 8 calls in flight" in shown
    assert "world-judge, because drained, loaded in 0.42 s" in shown


def test_a_drained_device_says_why_and_how_to_use_it_again(server: Server) -> None:
    server(says(DRAINED))
    shown = mathrag("gpu", "status", "cpu:0").stdout
    assert "driver update" in shown
    assert "next: mathrag gpu release cpu:0" in shown


def test_a_guard_that_does_not_answer_is_said(server: Server) -> None:
    away = {"reachable": False, "state": None, "epoch": None, "in_flight": None, "detail": "refused"}
    server(says([{**EXAMPLE, "guard": away}]))
    assert "does not answer: refused" in mathrag("gpu").stdout


@pytest.mark.parametrize("verb", ["drain", "release", "retry"])
def test_the_only_device_need_not_be_named(server: Server, verb: str) -> None:
    requests = server(lambda r: httpx2.Response(200, json=[EXAMPLE] if r.method == "GET" else DRAINED))
    assert mathrag("gpu", verb).exit_code == 0
    assert [request.url.raw_path for request in requests] == [b"/v1/gpus", f"/v1/gpus/cpu%3A0/{verb}".encode()]


@pytest.mark.parametrize(
    ("found", "said"),
    [(QUARANTINED, "device cpu:0 is tried again"), (EXAMPLE, "device cpu:0 is open, not quarantined")],
)
def test_a_retry_says_whether_there_is_anything_to_try(server: Server, found: object, said: str) -> None:
    server(says(found, 202))
    assert mathrag("gpu", "retry", "cpu:0").stdout.splitlines()[0] == said


def test_a_quarantined_device_says_how_to_try_it_again(server: Server) -> None:
    server(says(QUARANTINED))
    assert "next: mathrag gpu retry cpu:0" in mathrag("gpu", "status", "cpu:0").stdout


def test_of_several_devices_one_must_be_named(server: Server) -> None:
    requests = server(says([{"device": "a"}, {"device": "b"}]))
    ended = mathrag("gpu", "drain")
    assert (ended.exit_code, "a, b" in ended.stderr) == (Exit.USAGE, True)
    assert len(requests) == 1


def test_the_reason_goes_along(server: Server) -> None:
    requests = server(says(DRAINED, 202))
    assert msgspec.json.decode(mathrag("gpu", "drain", "cpu:0", "--reason", "r", "--json").stdout) == DRAINED
    assert msgspec.json.decode(requests[0].content) == {"reason": "r"}


def test_models_are_listed_with_their_roles(server: Server) -> None:
    model = {"name": "m", "driver": "process", "default_for": ["judge"], "context": 1024, "footprint_mib": 96}
    server(says([{**model, "registered": True, "digest": "ab" * 32}]))
    assert mathrag("model").stdout.splitlines()[1].split() == ["m", "process", "judge", "1024", "96", "yes", "ab" * 6]


def test_pipelines_are_listed_with_what_they_do(server: Server) -> None:
    found = [{"name": "dense", "summary": "Retrieve, then generate.", "calibrated": False, "hash": "cd" * 32}]
    server(says(found))
    assert "Retrieve, then generate." in mathrag("pipeline").stdout
    assert msgspec.json.decode(mathrag("pipeline", "list", "--json").stdout) == found
