"""Driver `vllm-sleep` against a double that dies of what kills a real server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil
import pytest

from services.guard.drivers import launched, vllm_sleep
from services.guard.drivers.launched import ProcessTree
from services.guard.drivers.ports import DriverError
from services.guard.drivers.vllm_sleep import AwakeServer, VllmSleepDriver
from services.guard.memory import MemoryReading, Verification
from shared.calls import Decoding
from shared.models.chat import ChatFailed
from shared.settings import Device, Model
from tests.doubles.puppets import StepClock

pytestmark = pytest.mark.anyio

Make = Callable[..., VllmSleepDriver]


@pytest.fixture
async def make(tmp_path: Path, programs: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    trees: list[ProcessTree] = []
    start = launched.start

    async def start_and_remember(*arguments: Any) -> ProcessTree:
        trees.append(await start(*arguments))
        return trees[-1]

    monkeypatch.setattr(launched, "start", start_and_remember)

    def made(*extra: str, **fields: Any) -> VllmSleepDriver:
        command = (programs("vllm_server"), "serve", *extra)
        options = {"hub": "Qwen/Q", "context": 256, "parallel": 2} | fields
        model = Model(driver="vllm-sleep", command=command, **options)
        return VllmSleepDriver("a-model", model, Device(load_timeout_s=60), str(tmp_path))

    yield made
    # Servers sleep on when a test ends. A child that is only killed, and not waited for, is a ResourceWarning of
    # whichever later test collects its garbage.
    for tree in trees:
        await tree.end()


def left(tmp_path: Path) -> int:
    return len(list(launched.find_marked(launched.OWNER, str(tmp_path))))


async def up(driver: VllmSleepDriver, parallel: int | None = None) -> AwakeServer:
    with anyio.fail_after(120):
        found = await driver.start(parallel)
    assert isinstance(found, AwakeServer)
    return found


async def ask(server: AwakeServer, method: str, path: str, **request: Any) -> httpx2.Response:
    program = psutil.Process(server.pid)
    arguments, key = program.cmdline(), program.environ()["VLLM_API_KEY"]
    address = f"http://127.0.0.1:{arguments[arguments.index('--port') + 1]}"
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=address, headers=headers, trust_env=False) as http:
        return await http.request(method, path, **request)


async def told(server: AwakeServer, how: str) -> None:
    assert (await ask(server, "POST", "/double/misbehave", json={"how": how})).status_code == 200


async def loads(server: AwakeServer) -> list[str]:
    found: list[str] = (await ask(server, "GET", "/double")).json()["loads"]
    return found


async def test_an_unload_is_a_sleep_and_the_next_load_a_waking(make: Make) -> None:
    driver = make()
    first = await up(driver)
    await first.stop()
    await first.stop()
    assert await loads(first) == ["started", "slept"]
    assert (first.alive, first.died) == (False, False)
    second = await up(driver)
    assert second.pid == first.pid
    assert await loads(second) == ["started", "slept", "woken"]
    assert (await second.complete("1 + 2 =", Decoding(max_tokens=9), 1)).text
    assert (second.alive, first.alive) == (True, False)


async def test_a_server_that_does_not_fall_asleep_is_ended(make: Make, tmp_path: Path) -> None:
    driver = make()
    first = await up(driver)
    for how in ("sleepless", "sleeps_awake"):
        await told(first, how)
        await first.stop()
        assert (how, first.alive, left(tmp_path)) == (how, False, 0)
        second = await up(driver)
        assert second.pid != first.pid
        assert await loads(second) == ["started"]
        first = second


async def test_a_server_that_does_not_wake_is_ended_and_started_anew_the_next_time(make: Make, tmp_path: Path) -> None:
    driver = make()
    found = await up(driver)
    for how in ("wakeless", "wakes_asleep"):
        await found.stop()
        await told(found, how)
        with pytest.raises(DriverError, match=r"'a-model': its server did not wake and was ended"):
            await driver.start()
        assert (how, left(tmp_path)) == (how, 0)
        found = await up(driver)
        assert found.alive


async def test_a_server_that_is_busy_is_not_sent_to_sleep(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_sleep, "IDLE_S", 0.2)
    found = await up(make())
    await told(found, "busy")
    await found.stop()
    assert (found.alive, left(tmp_path)) == (False, 0)


async def test_a_prompt_that_was_broken_off_is_waited_for(make: Make) -> None:
    driver = make()
    found = await up(driver)
    await told(found, "hang")
    call = asyncio.create_task(found.complete("1 + 2 =", Decoding(max_tokens=9), 1))
    with anyio.fail_after(60):
        while 'm"} 1.0' not in (await ask(found, "GET", "/metrics")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    call.cancel()
    await asyncio.wait([call])
    await found.stop()
    assert await loads(found) == ["started", "slept"]


async def test_a_server_that_died_awake_is_swept_up_and_started_anew(make: Make, tmp_path: Path) -> None:
    driver = make()
    first = await up(driver)
    await told(first, "out_of_memory")
    with pytest.raises(ChatFailed):
        await first.complete("1 + 2 =", Decoding(max_tokens=9), 1)
    with anyio.fail_after(60):
        await first.wait_exited()
    assert (first.alive, first.died, first.exit_status) == (False, True, 1)
    await first.stop()
    assert left(tmp_path) == 0
    assert (await up(driver)).pid != first.pid


async def test_a_server_that_died_asleep_is_started_anew(make: Make) -> None:
    driver = make()
    first = await up(driver)
    await first.stop()
    with pytest.raises(ChatFailed):
        await first.complete("a stray prompt", Decoding(max_tokens=9), 1)
    with anyio.fail_after(60):
        await first.wait_exited()
    assert (await up(driver)).pid != first.pid


async def test_another_number_of_slots_needs_another_start(make: Make) -> None:
    driver = make()
    first = await up(driver)
    await first.stop()
    second = await up(driver, 1)
    assert second.pid != first.pid
    await second.stop()
    assert (await up(driver, 1)).pid == second.pid


async def test_what_sleeps_is_not_read_ahead(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    async def noted(path: Path) -> None:
        read.append(path)

    monkeypatch.setattr(launched, "read_ahead", noted)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    driver = make(hub=None, path=tmp_path)
    await driver.warm()
    assert read == [tmp_path]
    await (await up(driver)).stop()
    await driver.warm()
    assert read == [tmp_path]
    await driver.take_over()
    await driver.warm()
    assert read == [tmp_path, tmp_path]


async def test_a_host_without_room_for_its_weights_ends_it_instead(make: Make, tmp_path: Path) -> None:
    found = await up(make(asleep_mib=1 << 40))
    await found.stop()
    assert (found.alive, left(tmp_path)) == (False, 0)


async def test_a_sleep_that_frees_nothing_is_found_by_what_the_device_has_free(make: Make, tmp_path: Path) -> None:
    """The server says that it sleeps; memory says that it does not: the device is cleared of everything of the guard,
    and the next model finds room."""

    class Device3000:
        async def read(self) -> MemoryReading:
            used = 3000 if left(tmp_path) else 100
            return MemoryReading(total=4096, used=used, free=4096 - used)

    async def at_once(_: float) -> None:
        """No waiting."""

    async def unrecorded(_: object) -> None:
        """No row."""

    driver = make()
    found = await up(driver)
    await found.stop()
    assert left(tmp_path) == 2
    device = Device(id="GPU-1", budget_mib=3500, reserve_mib=0, free_timeout_s=1)
    verification = Verification(Device3000(), device, StepClock(), unrecorded, at_once)  # type: ignore[arg-type]
    await verification.verify_free(3000, driver.take_over)
    assert left(tmp_path) == 0
    assert (await up(driver)).pid != found.pid


async def test_what_is_served_is_looked_at_after_each_waking(make: Make) -> None:
    driver = make()
    found = await up(driver)
    await found.stop()
    await told(found, "shrink")
    with pytest.raises(DriverError, match="has a context of 128, not 256"):
        await driver.start()
