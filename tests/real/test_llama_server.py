"""What the embedded llama.cpp is held to, asked of the real `llama-server` as the guard starts it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import psutil
import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import ExternalProgramDriver, ExternalProgramServer
from services.guard.drivers.ports import DriverError
from shared.settings import Device, Model
from tests.integration.test_model_servers import (
    CONTEXT,
    GENERATOR,
    GREEDY,
    JUDGE,
    test_a_greedy_answer_is_the_same_again_and_among_others,
    test_a_prompt_above_the_context_is_a_content_failure,
    test_a_server_that_is_killed_loses_its_calls,
    test_it_answers_with_text_reason_and_tokens,
    test_it_gives_the_log_probabilities_of_a_greedy_answer,
    test_it_reports_how_many_prompt_tokens_it_takes_from_its_cache,
)
from tests.integration.test_model_servers import driver as embedded
from tests.real.llama_server import LlamaServer

__all__ = [
    "test_a_greedy_answer_is_the_same_again_and_among_others",
    "test_a_prompt_above_the_context_is_a_content_failure",
    "test_a_server_that_is_killed_loses_its_calls",
    "test_it_answers_with_text_reason_and_tokens",
    "test_it_gives_the_log_probabilities_of_a_greedy_answer",
    "test_it_reports_how_many_prompt_tokens_it_takes_from_its_cache",
]

pytestmark = pytest.mark.anyio


def driver(llama: LlamaServer, owner: Path, path: Path = JUDGE, *extra: str) -> ExternalProgramDriver:
    model = Model(
        driver="process", server="llama.cpp", path=path, context=CONTEXT, parallel=2, command=(str(llama.path), *extra)
    )
    return ExternalProgramDriver("world", model, Device(), str(owner))


@pytest.fixture
async def server(llama: LlamaServer, tmp_path: Path) -> AsyncIterator[ExternalProgramServer]:
    started = await driver(llama, tmp_path).launch(2)
    yield started
    await started.stop()
    assert list(launched.find_marked(launched.OWNER, str(tmp_path))) == []


async def test_a_model_is_its_file_and_the_build_that_serves_it(llama: LlamaServer, tmp_path: Path) -> None:
    judge, generator = [await driver(llama, tmp_path, path).identify() for path in (JUDGE, GENERATOR)]
    assert judge.hash != generator.hash
    assert judge.version is not None
    assert judge.version in llama.version


async def test_the_key_is_needed_and_not_in_the_process_list(server: ExternalProgramServer) -> None:
    program = psutil.Process(server.pid)
    key = program.environ()["LLAMA_API_KEY"]
    assert all(key not in argument for argument in program.cmdline())
    (address,) = {each.laddr for each in program.net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN}
    assert address.ip == "127.0.0.1"
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{address.port}", trust_env=False) as http:
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 401


async def test_a_file_that_is_no_model_does_not_come_up(llama: LlamaServer, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(JUDGE.read_bytes()[:1000])
    with pytest.raises(DriverError, match=r"'world': its server ended with \d+ while it was loading: .*broken\.gguf"):
        await driver(llama, tmp_path, broken).start()
    assert list(launched.find_marked(launched.OWNER, str(tmp_path))) == []


async def test_an_argument_that_the_program_does_not_know_is_in_the_error(llama: LlamaServer, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="invalid argument: --bogus"):
        await driver(llama, tmp_path, JUDGE, "--bogus").start()


async def test_greedy_answers_are_those_of_the_embedded_driver(server: ExternalProgramServer) -> None:
    prompts = [f"What is {a} plus {b}?" for a in range(3) for b in range(3)]
    own = await embedded().start()
    try:
        for prompt in prompts:
            reply, expected = await server.complete(prompt, GREEDY, 1), await own.complete(prompt, GREEDY, 1)
            assert (reply.text, reply.prompt_tokens) == (expected.text, expected.prompt_tokens)
    finally:
        await own.stop()
