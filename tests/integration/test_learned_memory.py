"""What verified loads took is kept in rows: it widens, what is far begins it anew, and every flip teaches."""

import logging
from typing import Any

import pytest

from shared.lease import learned_memory, residencies
from shared.lease.memory import LearnedMemory
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.shapes import Architecture
from shared.storage.database import Database
from tests.integration.scene import rows
from tests.integration.test_reconciler import Rig

pytestmark = pytest.mark.anyio

GPU = "GPU-1"
QWEN = Architecture(
    weights_bytes=4_683_074_240, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584, vocabulary=152_064,
    trained_context=32_768, name="qwen2",
)  # fmt: skip


async def register(
    database: Database, name: str = "generator", device: str = GPU, backend: str = "llama.cpp", declared: int = 0
) -> int:
    identity = ModelIdentity(
        name=name, backend=backend, digest=name, device=device, needs_lease=True, footprint_mib=declared,
        options={"context": 2048, "parallel": 8},
    )  # fmt: skip
    async with database.transaction() as connection:
        return await pins.register(connection, identity, QWEN)


async def load(
    database: Database, measured: dict[str, Any], *ids: int, device: str = GPU, driver: str = "1", **parallel: int
) -> list[str]:
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, device)
        plan = {"parallel": {name.removeprefix("model_"): slots for name, slots in parallel.items()}}
        epoch = await residencies.insert_wanted(connection, device, newest.epoch if newest else 0, ids, "test", plan)
        assert epoch is not None
        await residencies.record_figures(connection, epoch, measured)
        return await learned_memory.learn(connection, epoch, driver)


async def learned(database: Database, device: str = GPU) -> dict[int, dict[int, LearnedMemory]]:
    async with database.transaction() as connection:
        return await learned_memory.find_learned(connection, device)


async def test_a_registered_model_keeps_its_architecture(database: Database) -> None:
    model = await register(database)
    ((kept,),) = await rows(database, "SELECT architecture FROM models WHERE id = :id", id=model)
    assert kept["layers"] == 28  # type: ignore[index]
    identity = ModelIdentity(
        name="generator", backend="llama.cpp", digest="generator", device=GPU, needs_lease=True,
        options={"context": 2048, "parallel": 8},
    )  # fmt: skip
    async with database.transaction() as connection:
        assert await pins.register(connection, identity) == model
    assert await rows(database, "SELECT architecture FROM models WHERE id = :id", id=model) == [(None,)]


@pytest.mark.parametrize(("declared", "expected"), [(0, (6327, True)), (7000, (7000, False))])
async def test_a_footprint_that_is_not_declared_is_estimated(
    database: Database, declared: int, expected: tuple[int, bool]
) -> None:
    model = await register(database, declared=declared)
    assert await rows(database, "SELECT footprint_mib, estimated FROM models WHERE id = :id", id=model) == [expected]


async def test_a_model_that_tells_nothing_and_declares_nothing_counts_as_nothing(database: Database) -> None:
    identity = ModelIdentity(name="m", backend="scripted", digest="m", device=GPU, needs_lease=True)
    async with database.transaction() as connection:
        await pins.register(connection, identity)
    assert await rows(database, "SELECT footprint_mib, estimated FROM models") == [(0, False)]


async def test_loads_widen_the_band_of_their_slots(database: Database) -> None:
    model = await register(database)
    for mib in (6000, 6100, 5990):
        assert await load(database, {"loaded_mib": mib}, model) == []
    await load(database, {"loaded_mib": 5600}, model, **{f"model_{model}": 4})
    assert await learned(database) == {
        model: {
            8: LearnedMemory(least_mib=5990, most_mib=6100, loads=3),
            4: LearnedMemory(least_mib=5600, most_mib=5600, loads=1),
        }
    }


async def test_a_load_far_outside_is_reported_and_begins_anew(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    model = await register(database)
    for mib in (6000, 6100):
        await load(database, {"loaded_mib": mib}, model)
    with caplog.at_level(logging.WARNING):
        (said,) = await load(database, {"loaded_mib": 9000}, model)
    assert said == "generator took 9000 MiB, where 2 loads took 6000 to 6100 MiB; learning starts over from it"
    assert said in caplog.text
    ((kept,),) = await rows(database, "SELECT measured -> 'astray' FROM residencies ORDER BY epoch DESC LIMIT 1")
    assert kept == [said]
    assert (await learned(database))[model][8] == LearnedMemory(least_mib=9000, most_mib=9000, loads=1)


async def test_a_first_load_far_from_what_was_expected_is_reported(database: Database) -> None:
    model, declared = await register(database), await register(database, "other", declared=4000)
    (said,) = await load(database, {"loaded_mib": 12_000}, model)
    assert said.startswith("generator took 12000 MiB, where 6")
    assert said.endswith("were estimated")
    (said,) = await load(database, {"loaded_mib": 6000}, declared)
    assert said == "other took 6000 MiB, where 4000 were declared"
    assert (await learned(database))[model][8].most_mib == 12_000


async def test_of_several_at_once_the_device_tells_nothing_of_each(database: Database) -> None:
    ids = [await register(database), await register(database, "judge")]
    figures = {"loaded_mib": 8000, "memory_mib": {str(each): 300.0 for each in ids}}
    assert await load(database, figures, *ids) == []
    assert await learned(database) == {}


@pytest.mark.parametrize(("backend", "expected"), [("ollama", 5900.0), ("llama.cpp", None)])
async def test_where_the_device_is_not_measured_only_ollama_knows(
    database: Database, backend: str, expected: float | None
) -> None:
    model = await register(database, backend=backend)
    await load(database, {"memory_mib": {str(model): 5900.0}}, model)
    found = (await learned(database)).get(model, {}).get(8)
    assert (found.most_mib if found else None) == expected


async def test_on_a_cpu_the_process_is_measured_and_never_astray(database: Database) -> None:
    model = await register(database, device="cpu:0", declared=96)
    assert await load(database, {"memory_mib": {str(model): 44.2}}, model, device="cpu:0", driver="") == []
    found = (await learned(database, "cpu:0"))[model][8]
    assert found.most_mib == pytest.approx(44.2)


async def test_another_driver_learns_from_the_beginning(database: Database) -> None:
    model = await register(database)
    await load(database, {"loaded_mib": 6000}, model, driver="570.1")
    await load(database, {"loaded_mib": 6200}, model, driver="580.2")
    assert (await learned(database))[model][8] == LearnedMemory(least_mib=6200, most_mib=6200, loads=1)
    assert await rows(database, "SELECT count(*) FROM footprints") == [(2,)]


async def test_every_verified_flip_teaches(database: Database) -> None:
    rig = await Rig(database).register()
    await rig.flip("judge")
    await rig.flip("generator")
    await rig.flip("judge")
    found = await learned(database, "cpu:0")
    assert {model: band for model, by_slots in found.items() for band in by_slots.values()} == {
        rig.ids["judge"]: LearnedMemory(least_mib=42, most_mib=42, loads=2),
        rig.ids["generator"]: LearnedMemory(least_mib=42, most_mib=42, loads=1),
    }
