"""Plans of models that are not there: what a request's own figures come to."""

import pytest
from services.orchestrator.scheduling.whatif import ModelWanted, make_demands
from shared.calls import Lane
from shared.lease.memory import Hardware
from shared.lease.plan import Plan, Room, plan

pytestmark = pytest.mark.anyio

ROOM = Room(device="gpu:0", budget_mib=11_700)
LARGE, SMALL = "qwen2.5-7b", "qwen2.5-0.5b"


def planned(*models: ModelWanted) -> Plan:
    return plan(make_demands(list(models), Hardware(), on_gpu=True), [ROOM])


def test_one_model_in_both_roles_is_loaded_once() -> None:
    generate = ModelWanted(role="generate", preset=LARGE, calls=500)
    judge = ModelWanted(role="judge", preset=LARGE, calls=5000)
    (both,) = make_demands([generate, judge], Hardware(), on_gpu=True)
    (alone,) = make_demands([generate], Hardware(), on_gpu=True)
    assert (both.calls, both.lane, both.call_s, both.load_s) == (5500, Lane.JUDGE, alone.call_s, alone.load_s)
    chosen = planned(judge, generate).chosen
    assert chosen is not None
    assert (chosen.loads, chosen.flips, [len(each.models) for each in chosen.residencies]) == (1, 0, [1])


def test_two_models_and_two_settings_of_one_model_are_two_loads() -> None:
    judge = ModelWanted(role="judge", preset=LARGE)
    for generate in (ModelWanted(role="generate", preset=SMALL), ModelWanted(role="generate", preset=LARGE, kv="q8_0")):
        chosen = planned(judge, generate).chosen
        assert chosen is not None
        assert chosen.loads == 2
