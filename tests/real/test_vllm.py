"""The real vLLM as the guard starts it: what model servers are held to, a job of 60 questions, and a kill."""

from collections.abc import AsyncIterator, Iterator

import pytest

from services.guard.drivers import trees
from services.guard.drivers.launched import LaunchedDriver, LaunchedServer
from shared.settings import Device
from tests.faults.processes import Processes, until
from tests.faults.real import done
from tests.faults.vocabulary import Subject
from tests.integration.test_model_servers import (
    test_a_greedy_answer_is_the_same_again_and_among_others,
    test_a_prompt_above_the_context_is_a_content_failure,
    test_it_gives_the_log_probabilities_of_a_greedy_answer,
)
from tests.real.servers import had
from tests.real.stacks import SIXTY, assert_served_by, ends_whole, furnished
from tests.real.vllm import ENVIRONMENT, LOAD_S, Vllm, installed
from tests.running import RunningStack

__all__ = [
    "test_a_greedy_answer_is_the_same_again_and_among_others",
    "test_a_prompt_above_the_context_is_a_content_failure",
    "test_it_gives_the_log_probabilities_of_a_greedy_answer",
]

pytestmark = [pytest.mark.anyio, pytest.mark.vllm]
NAMES = ("world-judge", "world-generator")


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """The program, with both shipped models in folders that it reads."""
    found = had("vLLM", installed, lambda found: found.version)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        yield found.with_models(NAMES, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
async def server(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LaunchedServer]:
    """The judge, which takes minutes to come up."""
    owner = str(tmp_path_factory.mktemp("owner"))
    started = await LaunchedDriver(NAMES[0], vllm.model(NAMES[0]), Device(load_timeout_s=LOAD_S), owner).launched(4)
    yield started
    await started.stop()
    assert list(trees.marked(trees.OWNER, owner)) == []


@pytest.fixture(scope="module")
def answering(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack whose guard starts vLLM for both shipped models."""
    models = {name: vllm.model(name).model_dump(mode="json", exclude_unset=True) for name in NAMES}
    settings = {"models": models, "device": {"load_timeout_s": LOAD_S, "budget_mib": 5000}}
    with furnished(tmp_path_factory.mktemp("answering"), settings) as stack:
        yield stack


async def test_a_model_is_its_folder_and_the_version_that_serves_it(vllm: Vllm) -> None:
    """Two folders are two models."""
    judge, generator = [await LaunchedDriver(name, vllm.model(name), Device(), "nobody").identify() for name in NAMES]
    assert judge.hash != generator.hash
    assert judge.version == vllm.version


def test_a_job_whose_models_are_served_by_vllm(answering: RunningStack) -> None:
    """Judge and generator are two programs, one after the other."""
    report = ends_whole(answering, "vllm")
    assert report["parse_failures"] == 0
    assert_served_by(answering, report["id"], "vllm")


def test_a_vllm_is_killed(answering: RunningStack) -> None:
    """The program and its engine; the model is loaded again, and the calls that it had are made again."""
    job = answering.submit("killed", reuse="none", **SIXTY)
    answering.wait(job, lambda document: done(document, "judge") >= 20)
    processes = Processes(answering)
    until("a model is loaded", processes.servers)
    processes.kill(Subject.SERVER)
    answering.assert_whole(job)
