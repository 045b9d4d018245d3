"""Jobs on a real Ollama: what the embedded llama.cpp is held to, and a runner, a server or a tag that is taken away."""

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from services.guard.drivers.ollama import OllamaDriver, OllamaServer
from shared.settings import Device, Model
from tests.faults.gates import Session
from tests.faults.processes import until
from tests.faults.real import done
from tests.integration.test_model_servers import (
    CONTEXT,
    test_a_greedy_answer_is_the_same_again_and_among_others,
    test_a_prompt_above_the_context_is_a_content_failure,
    test_it_answers_with_text_reason_and_tokens,
    test_it_gives_the_log_probabilities_of_a_greedy_answer,
)
from tests.real.ollama import FILES, JUDGE, Ollama, served_by
from tests.real.stacks import SIXTY, assert_served_by, ends_whole, furnished
from tests.real.test_llama_server import test_greedy_answers_are_those_of_the_embedded_driver
from tests.running import RunningStack

__all__ = [
    "test_a_greedy_answer_is_the_same_again_and_among_others",
    "test_a_prompt_above_the_context_is_a_content_failure",
    "test_greedy_answers_are_those_of_the_embedded_driver",
    "test_it_answers_with_text_reason_and_tokens",
    "test_it_gives_the_log_probabilities_of_a_greedy_answer",
]

pytestmark = pytest.mark.anyio

AWAY_S = 10.0
"""Longer than the client's own repetitions take."""
JOB = {"reuse": "none", **SIXTY}
REFUSED = "SELECT 1 FROM residencies WHERE reason LIKE '%is not the one jobs were submitted with%'"
RATED = """
    SELECT count(*), sum(prompt_tokens) FROM attempts WHERE accepted AND call_id IN (
        SELECT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
        JOIN calls c ON c.id = t.call_id WHERE CAST(j.public_id AS text) = $1 AND c.role = 'judge')"""


@pytest.fixture
async def server(ollama: Ollama) -> AsyncIterator[OllamaServer]:
    model = Model(driver="ollama", url=ollama.url, tag=JUDGE, context=CONTEXT, parallel=2)
    started = await OllamaDriver("world", model, Device(), frozenset(FILES)).start()
    yield started
    await started.stop()
    assert ollama.loaded() == []


@pytest.fixture(scope="module")
def answering(ollama: Ollama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with furnished(tmp_path_factory.mktemp("answering"), {"models": served_by(ollama)}) as stack:
        yield stack
    assert ollama.loaded() == []


def half_judged(stack: RunningStack, name: str) -> str:
    job = stack.submit(name, **JOB)
    stack.wait(job, lambda document: done(document, "judge") >= 20)
    return job


def test_a_job_whose_models_are_served_by_ollama(answering: RunningStack) -> None:
    report = ends_whole(answering, "ollama")
    assert report["parse_failures"] == 0
    assert_served_by(answering, report["id"], "ollama")


def test_a_runner_is_killed(answering: RunningStack, ollama: Ollama) -> None:
    job = half_judged(answering, "killed")
    killed = ollama.kill_runners()
    answering.assert_whole(job)
    if not killed:
        pytest.skip(f"Ollama: no runner of {ollama.url} is a process that is seen from here and may be killed")


def test_ollama_is_stopped_and_comes_back(answering: RunningStack, ollama: Ollama) -> None:
    if ollama.program is None:
        pytest.skip(f"Ollama: {ollama.url} is not ours to stop")
    job = half_judged(answering, "stopped")
    ollama.stop()
    time.sleep(AWAY_S)
    ollama.start()
    answering.assert_whole(job)


def test_a_tag_that_changes_is_refused_until_it_is_what_it_was(answering: RunningStack, ollama: Ollama) -> None:
    plain = answering.submit("plain", **JOB)
    answering.assert_whole(plain)
    job = half_judged(answering, "changed")
    ollama.create(JUDGE, system="You are a careful judge who explains every rating at length.")
    with Session(answering) as session:
        until("the tag is refused", lambda: session.rows(REFUSED))
        ollama.create(JUDGE)
        answering.assert_whole(job)
        assert session.rows(RATED, job) == session.rows(RATED, plain)
