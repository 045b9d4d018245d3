"""Devices, models, pipelines and plans on the command line."""

from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.gpus import DRAINED, QUARANTINED, make_memory
from shared.storage.devices import ResidentModel
from tests.unit.commands import Server, mathrag, says

# Devices, models and pipelines on the command line.

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


def test_shares_are_shown_with_the_limits(server: Server) -> None:
    server(says(make_example("Shares", keys=[{**make_example("Shares")["keys"][0], "gpu_s": 2 / 3}])))
    head, alice, *limits = mathrag("gpu", "shares").stdout.splitlines()
    assert " ".join(head.split()) == "KEY WEIGHT PROJECT UNFINISHED ENDED 24H GPU S 24H STORED MIB"
    assert alice.split() == ["alice", "3", "thesis", "600", "1200", "0.7", "61.5"]
    assert limits == [
        "limits.samples_per_key: none", "limits.gpu_s_per_key: 36000.0", "limits.storage_mib_per_key: 2048",
    ]  # fmt: skip


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
    shown = mathrag("gpu", "status", "cpu:0").stdout
    assert "next: mathrag gpu retry cpu:0" in shown
    assert "quarantined, 0 calls in flight" in shown  # its guard has no epoch


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


# `mathrag plan`: what it asks, what it shows, and how it ends.

ANSWER = make_example("PlanView")

REFUSED = {
    "name": "together", "residencies": [], "loads": 2, "flips": 0, "seconds": 9.0, "basis": "assumed",
    "refused": "192 MiB (a 96 with slots: 4, b 96 with slots: 4) of 160 on cpu:0",
}  # fmt: skip
HOPELESS: dict[str, Any] = {"chosen": None, "why": "b fits nowhere", "others": [REFUSED], "resident": {"cpu:0": []}}


def test_a_job_is_planned_by_its_name(server: Server) -> None:
    requests = server(says({**ANSWER, "others": [REFUSED], "resident": {"cpu:0": ["world-judge"]}}))
    ended = mathrag("plan", "first")
    assert (ended.exit_code, requests[0].method, requests[0].url.path) == (0, "GET", "/v1/jobs/first/plan")
    assert "the only way that fits" in ended.stdout
    assert "cpu:0 holds world-judge now" in ended.stdout
    assert "world-judge x8" in ended.stdout
    assert "memory declared; a load measured (its last loads here); a call measured (its last calls)" in ended.stdout
    assert "192 MiB (a 96 with slots: 4, b 96 with slots: 4) of 160 on cpu:0" in ended.stdout


def test_a_job_that_is_not_submitted_is_asked_as_a_job_is(server: Server) -> None:
    requests = server(says(ANSWER))
    arguments = ("--pipeline", "p", "--dataset", "d", "--corpus", "c", "--repeats", "2", "--set", "gate.tau=0.3")
    assert mathrag("plan", *arguments, "--model", "judge=j", "--budget", "12000").exit_code == 0
    assert requests[0].url.path == "/v1/plan"
    assert msgspec.json.decode(requests[0].content) == {
        "job": {
            "name": "plan", "dataset": "d", "corpus": "c", "pipeline": "p", "repeats": 2,
            "params": {"gate": {"tau": 0.3}}, "models": {"judge": "j"},
        },
        "devices": [{"id": "gpu:0", "budget_mib": 12_000}],
    }  # fmt: skip


def test_models_are_asked_for_by_preset(server: Server) -> None:
    requests = server(says(ANSWER))
    models = ("--models", "judge=qwen2.5-0.5b:f16", "--models", "generate=qwen2.5-7b")
    options = ("--context", "4096", "--parallel", "4", "--kv", "q8_0", "--calls", "9", "--budget", "1", "--budget", "2")
    assert mathrag("plan", *models, *options).exit_code == 0
    same = {"context": 4096, "parallel": 4, "kv": "q8_0", "calls": 9}
    assert msgspec.json.decode(requests[0].content) == {
        "models": [
            {"role": "judge", "preset": "qwen2.5-0.5b", "quantisation": "f16", **same},
            {"role": "generate", "preset": "qwen2.5-7b", **same},
        ],
        "devices": [{"id": "gpu:0", "budget_mib": 1}, {"id": "gpu:1", "budget_mib": 2}],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a plan is made for exactly one of JOB"),
        (("first", "--models", "judge=x"), "a plan is made for exactly one of JOB"),
        (("--dataset", "d"), "both --dataset and --pipeline"),
        (("--models", "qwen"), "KEY=VALUE"),
    ],
)
def test_a_question_must_be_one(server: Server, arguments: tuple[str, ...], said: str) -> None:
    requests = server(says(ANSWER))
    ended = mathrag("plan", *arguments)
    assert (ended.exit_code, said in ended.stderr) == (Exit.USAGE, True)
    assert not requests


def test_where_nothing_fits_the_command_says_so(server: Server) -> None:
    server(says(HOPELESS))
    ended = mathrag("plan", "first")
    assert (ended.exit_code, "b fits nowhere" in ended.stdout) == (Exit.FINDING, True)


def test_a_job_that_wants_nothing_is_no_finding(server: Server) -> None:
    server(says({"chosen": None, "why": "no model is wanted", "others": [], "resident": {"cpu:0": []}}))
    assert mathrag("plan", "first").exit_code == 0


def test_a_program_gets_it_as_it_is(server: Server) -> None:
    server(says(ANSWER))
    assert msgspec.json.decode(mathrag("plan", "first", "--json").stdout) == ANSWER


# What is said of a device whose models hold more than was declared for them.


def model(footprint_mib: int, measured_mib: float | None) -> ResidentModel:
    return ResidentModel(name="generator", digest=None, footprint_mib=footprint_mib, measured_mib=measured_mib)


def test_a_model_of_a_processor_that_holds_far_more_than_was_declared_is_named() -> None:
    memory = make_memory("cpu:0", [model(1100, 3010.0)], 4000)
    assert memory.remark is not None
    assert memory.remark.startswith("generator uses 3010 MiB, but its `footprint_mib` declares 1100: raise it")


@pytest.mark.parametrize(
    ("device", "declared", "measured"),
    [("cpu:0", 1100, 1200.0), ("cpu:0", 1100, None), ("cpu:0", 0, 41.5), ("gpu:0", 1100, 3010.0)],
)
def test_nothing_is_remarked_of_what_fits_is_unknown_or_lies_elsewhere(
    device: str, declared: int, measured: float | None
) -> None:
    assert make_memory(device, [model(declared, measured)], 4000).remark is None


def test_the_remark_is_shown(server: Server) -> None:
    server(says([{**EXAMPLE, "memory": {**EXAMPLE["memory"], "remark": "generator holds 3010 MiB"}}]))
    assert "generator holds 3010 MiB" in mathrag("gpu").stdout
