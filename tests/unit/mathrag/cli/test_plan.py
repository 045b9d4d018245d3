"""`mathrag plan`: what it asks, what it shows, and how it ends."""

from typing import Any

import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from tests.unit.commands import Server, mathrag, says

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
        ((), "give exactly one of"),
        (("first", "--models", "judge=x"), "give exactly one of"),
        (("--dataset", "d"), "both --dataset and --pipeline"),
        (("--models", "qwen"), "key=value"),
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
