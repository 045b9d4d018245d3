"""The real vLLM: as the guard starts it, what model servers are held to, and jobs on it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import ExternalProgramDriver, ExternalProgramServer
from shared.settings import Device
from tests.integration.test_model_servers import (
    test_a_greedy_answer_is_the_same_again_and_among_others,
    test_a_prompt_above_the_context_is_a_content_failure,
    test_it_gives_the_log_probabilities_of_a_greedy_answer,
)
from tests.real.stacks import assert_served_by, ends_whole, furnished, survives_a_kill
from tests.real.test_conformance import RECORDED, assert_holds
from tests.real.vllm import LOAD_S, NAMES, Vllm
from tests.running import RunningStack

__all__ = [
    "test_a_greedy_answer_is_the_same_again_and_among_others",
    "test_a_prompt_above_the_context_is_a_content_failure",
    "test_it_gives_the_log_probabilities_of_a_greedy_answer",
]

pytestmark = [pytest.mark.anyio, pytest.mark.vllm]


@pytest.fixture(scope="module")
async def server(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ExternalProgramServer]:
    owner = str(tmp_path_factory.mktemp("owner"))
    driver = ExternalProgramDriver(NAMES[0], vllm.model(NAMES[0]), Device(load_timeout_s=LOAD_S), owner)
    started = await driver.launch(4)
    yield started
    await started.stop()
    assert list(launched.find_marked(launched.OWNER, owner)) == []


async def test_a_model_is_its_folder_and_the_version_that_serves_it(vllm: Vllm) -> None:
    judge, generator = [
        await ExternalProgramDriver(name, vllm.model(name), Device(), "nobody").identify() for name in NAMES
    ]
    assert judge.hash != generator.hash
    assert judge.version == vllm.version


@pytest.fixture(scope="module")
def answering(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    models = {name: vllm.model(name).model_dump(mode="json", exclude_unset=True) for name in NAMES}
    settings = {"models": models, "device": {"load_timeout_s": LOAD_S, "budget_mib": 5000}}
    with furnished(tmp_path_factory.mktemp("answering"), settings) as stack:
        yield stack


def test_vllm_answers_as_it_was_recorded_to(vllm: Vllm) -> None:
    program, model = vllm.folder / "bin" / "vllm", vllm.models / "world-generator"
    assert_holds(RECORDED, "real_server and vllm", VLLM=str(program), VLLM_MODEL=str(model))


def test_a_job_whose_models_are_served_by_vllm(answering: RunningStack) -> None:
    report = ends_whole(answering, "vllm")
    assert report["parse_failures"] == 0
    assert_served_by(answering, report["id"], "vllm")


def test_a_vllm_is_killed(answering: RunningStack) -> None:
    survives_a_kill(answering)
