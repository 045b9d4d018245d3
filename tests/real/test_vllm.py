"""The real vLLM as the guard starts it: what model servers are held to."""

from collections.abc import AsyncIterator

import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import ExternalProgramDriver, ExternalProgramServer
from shared.settings import Device
from tests.integration.test_model_servers import (
    test_a_greedy_answer_is_the_same_again_and_among_others,
    test_a_prompt_above_the_context_is_a_content_failure,
    test_it_gives_the_log_probabilities_of_a_greedy_answer,
)
from tests.real.vllm import LOAD_S, NAMES, Vllm

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
