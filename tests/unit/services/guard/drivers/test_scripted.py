"""The scripted model: answers by rule, so two runs agree and every hop around it is real."""

import pytest

from services.guard.drivers.plugin import RATING, ScriptedDriver, ScriptedServer
from shared.calls import Decoding
from shared.mathtext.answers import extract
from shared.rag.prompts import parse_rating
from shared.replies import Rated
from shared.settings import Device, Model

pytestmark = pytest.mark.anyio

MODEL = Model(driver="scripted", footprint_mib=7)


async def test_it_rates_what_asks_for_a_rating() -> None:
    replies = [await ScriptedServer().complete(f"{n} {RATING}", Decoding(), 0) for n in range(100)]
    ratings = [parse_rating(reply.text, truncated=False) for reply in replies]
    assert all(isinstance(rating, Rated) for rating in ratings)
    assert {rating.rating for rating in ratings if isinstance(rating, Rated)} == {1, 2, 3, 4, 5}


async def test_it_boxes_an_answer_to_everything_else() -> None:
    reply = await ScriptedServer().complete("What is 1 plus 1?", Decoding(), 0)
    answer, _ = extract(reply.text)
    assert answer in {str(n) for n in range(10)}
    assert (reply.finish_reason, reply.prompt_tokens) == ("stop", 5)


async def test_a_greedy_answer_depends_on_the_prompt_alone() -> None:
    greedy = Decoding(temperature=0.0)
    assert await ScriptedServer().complete("p", greedy, 1) == await ScriptedServer().complete("p", greedy, 2)
    assert len({(await ScriptedServer().complete(str(n), greedy, 0)).text for n in range(50)}) > 1


async def test_a_sampled_answer_depends_on_the_seed_too() -> None:
    sampled = Decoding(temperature=0.7)
    first = [(await ScriptedServer().complete("p", sampled, seed)).text for seed in range(50)]
    assert first == [(await ScriptedServer().complete("p", sampled, seed)).text for seed in range(50)]
    assert len(set(first)) > 1


async def test_it_needs_the_lease_and_fits_a_budget_like_any_other() -> None:
    driver = ScriptedDriver("s", MODEL, Device(id="cpu:1"))
    identity = await driver.identify()
    assert (identity.needs_lease, identity.device, identity.footprint_mib) == (True, "cpu:1", 7)
    assert identity.hash == (await driver.identify()).hash


async def test_it_is_alive_until_it_is_stopped() -> None:
    server = await ScriptedDriver("s", MODEL, Device()).start()
    assert (server.pid, server.alive, server.memory_mib()) == (None, True, 0.0)
    await server.stop()
    assert not server.alive
