"""Programs that the guard launches: with their command lines, files and versions; real processes, doubled protocols."""

import asyncio
import ctypes
import mmap
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import psutil
import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import CHUNK, RESERVE, ExternalProgramDriver, ExternalProgramServer, read_ahead
from services.guard.drivers.ports import DriverError
from services.guard.drivers.process import ProcessDriver
from shared.calls import Decoding
from shared.models.chat import BY_BACKEND, ChatFailed
from shared.models.commands import TGI, VLLM
from shared.replies import FailureKind
from shared.settings import REPOSITORY, Device, Model

pytestmark = pytest.mark.anyio

# Driver `process` for the programs of others: real processes with their command lines, doubled protocols.

SHA = "0123456789abcdef0123456789abcdef01234567"
DOUBLES = {"tgi": "tgi_server", "vllm": "vllm_server"}
GGUF = REPOSITORY / "models" / "world-judge-f16.gguf"

Make = Callable[..., ExternalProgramDriver]


@pytest.fixture
async def make(tmp_path: Path, programs: Callable[[str], str]) -> AsyncIterator[Make]:
    owner = str(tmp_path)

    def made(server: str, *extra: str, load_timeout_s: float = 60.0, **fields: Any) -> ExternalProgramDriver:
        serve = ("serve",) if server == "vllm" else ()
        command = (programs(DOUBLES.get(server, "llama_server")), *serve, *extra)
        options = {"hub": "Qwen/Q", "revision": SHA, "context": 256, "parallel": 2, "command": command} | fields
        model = Model(driver="process", server=server, **options)  # type: ignore[arg-type]
        return ExternalProgramDriver("a-model", model, Device(load_timeout_s=load_timeout_s), owner)

    yield made
    await launched.end_leftovers(owner)


def left(tmp_path: Path) -> list[int]:
    return [process.pid for process in launched.find_marked(launched.OWNER, str(tmp_path))]


async def up(driver: ExternalProgramDriver, slots: int = 2) -> ExternalProgramServer:
    with anyio.fail_after(120):
        return await driver.launch(slots)


@pytest.mark.parametrize("server", DOUBLES)
async def test_a_server_is_up_once_it_answers_and_gone_with_all_that_it_started(
    make: Make, server: str, tmp_path: Path
) -> None:
    found = await up(make(server))
    reply = await found.complete("How much is it? Rating:", Decoding(max_tokens=9), 1)
    assert reply.text.startswith("[[")
    assert found.alive
    assert len(left(tmp_path)) == 2
    assert (found.memory_mib() or 0) > 0
    await found.stop()
    assert (found.alive, found.exit_status) == (False, -signal.SIGTERM)
    assert left(tmp_path) == []
    await found.stop()  # a second time is harmless


@pytest.mark.parametrize("server", [*DOUBLES, "llama.cpp"])
async def test_a_reply_is_one_of_those_that_are_allowed(make: Make, server: str) -> None:
    generator = {"hub": None, "revision": None, "path": GGUF.with_name("world-generator-f16.gguf")}
    found = await up(make(server, constrain_labels=True, **(generator if server == "llama.cpp" else {})))
    prompt = "Is it supported? Answer with a label."
    constrained = await found.complete(prompt, Decoding(max_tokens=9), 1, choices=("[[1]]", "[[2]]"))
    free = await found.complete(prompt, Decoding(max_tokens=9), 1)
    await found.stop()
    assert constrained.text in ("[[1]]", "[[2]]")
    assert "[[" not in free.text


@pytest.mark.parametrize(("slots", "deterministic"), [(2, False), (1, True)])
async def test_llama_cpps_own_server_is_spoken_to(
    make: Make, tmp_path: Path, slots: int, *, deterministic: bool
) -> None:
    driver = make("llama.cpp", hub=None, revision=None, path=GGUF, parallel=slots, deterministic=deterministic)
    found = await up(driver, slots)
    assert (await found.complete("3 + 4 =", Decoding(max_tokens=4), 1)).prompt_tokens
    with pytest.raises(ChatFailed) as caught:
        await found.complete("1 " * 400, Decoding(max_tokens=4), 1)
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    await found.stop()
    assert left(tmp_path) == []


@pytest.mark.parametrize("server", DOUBLES)
async def test_a_model_is_its_commit_its_programs_version_and_its_arguments(make: Make, server: str) -> None:
    identity = await make(server).identify()
    assert (identity.backend, identity.digest, identity.needs_lease) == (server, SHA, True)
    assert identity.options["sampling"] == BY_BACKEND[server]
    assert identity.version == {"tgi": "3.3.7", "vllm": "0.32.0"}[server]
    assert (await make(server, footprint_mib=9, threads=3).identify()).hash == identity.hash
    for other in (make(server, "--dtype", "half"), make(server, context=128), make(server, hub="Qwen/R")):
        assert (await other.identify()).hash != identity.hash


async def test_a_deterministic_model_is_another_model(make: Make) -> None:
    plain, deterministic = await make("vllm").identify(), await make("vllm", deterministic=True).identify()
    assert deterministic.options == plain.options | {"deterministic": True, "threads": 1}
    assert deterministic.hash != plain.hash


@pytest.mark.parametrize("server", DOUBLES)
async def test_a_model_with_constrained_labels_is_another_model(make: Make, server: str) -> None:
    plain, constrained = await make(server).identify(), await make(server, constrain_labels=True).identify()
    assert constrained.options == plain.options | {"constrain_labels": True}
    assert constrained.hash != plain.hash


@pytest.mark.parametrize(("version", "refused"), [("0.10.2", True), ("0.11.0", False), ("0.32.0+cpu", False)])
async def test_a_vllm_that_would_ignore_a_constraint_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch, version: str, *, refused: bool
) -> None:
    async def find(*_: object) -> str:
        return version

    monkeypatch.setattr(launched, "find_version", find)
    driver = make("vllm", constrain_labels=True)
    if not refused:
        assert (await driver.identify()).options["constrain_labels"]
        return
    with pytest.raises(DriverError, match=r"'a-model': `constrain_labels` needs vLLM 0\.11 or later, not 0\.10\.2"):
        await driver.identify()


async def test_a_file_that_an_argument_names_is_part_of_the_model(make: Make, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("one")
    driver = make("vllm", "--chat-template", str(template))
    before = await driver.identify()
    assert before.options["files"].keys() == {str(template)}
    template.write_text("two")
    assert (await driver.identify()).hash != before.hash
    joined = await make("vllm", f"--chat-template={template}").identify()
    assert joined.options["files"].keys() == {f"--chat-template={template}"}


async def test_settings_in_the_environment_are_part_of_the_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await make("vllm").identify()
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "other")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    after = await make("vllm").identify()
    assert after.options["environment"]["VLLM_ATTENTION_BACKEND"] == "other"
    assert "secret" not in repr(after)
    assert after.hash != before.hash


async def test_a_name_on_the_hub_without_a_commit_pins_nothing(make: Make) -> None:
    assert (await make("vllm", revision=None).identify()).digest is None


async def test_a_folder_pins_by_its_bytes(make: Make, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    driver = make("vllm", hub=None, revision=None, path=tmp_path / "model")
    before = await driver.identify()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    assert (await driver.identify()).digest not in (None, before.digest)


async def test_a_program_that_is_not_there_is_named(make: Make) -> None:
    with pytest.raises(DriverError, match=r"'a-model'.*'no-such-program'.*`command`"):
        await make("vllm", command=("no-such-program", "serve")).identify()


async def test_a_program_that_prints_no_version_is_no_model_server(make: Make) -> None:
    with pytest.raises(DriverError, match=r"prints 'Python .*, which contains no version"):
        await make("vllm", command=(sys.executable, "serve")).identify()


@pytest.mark.parametrize(
    ("server", "how", "words"),
    [
        ("tgi", "crash_on_load", r"ended with 1 while it was loading: .*not enough memory for the weights"),
        ("vllm", "crash_on_load", r"ended with 1 while it was loading: .*not enough memory for the weights"),
        ("vllm", "illegal_instruction", "ended by SIGILL, an instruction that this processor lacks: install"),
        ("tgi", "digest", "serves revision ffff"),
        ("vllm", "digest", "serves another/model"),
        ("tgi", "shrink", "has a context of 128, not 256; set `context`"),
        ("vllm", "shrink", "has a context of 128, not 256; set `context`"),
        ("vllm", "cut", "silently truncates prompts that do not fit"),
    ],
)
async def test_a_server_that_is_not_what_was_asked_for_does_not_come_up(
    make: Make, tmp_path: Path, server: str, how: str, words: str
) -> None:
    with anyio.fail_after(120), pytest.raises(DriverError, match=f"'a-model': its server {words}"):
        await make(server, "--double", how).start()
    assert left(tmp_path) == []


async def test_an_argument_that_the_program_does_not_know_is_in_the_error(make: Make) -> None:
    with anyio.fail_after(120), pytest.raises(DriverError, match="unrecognized arguments: --bogus"):
        await make("tgi", "--bogus").start()


async def test_a_server_that_is_never_ready_is_given_up(make: Make, tmp_path: Path) -> None:
    with (
        anyio.fail_after(120),
        pytest.raises(DriverError, match=r"was not ready within 3 s; raise `device.load_timeout_s`"),
    ):
        await make("vllm", "--double", "hang_on_load", load_timeout_s=3.0).start()
    assert left(tmp_path) == []


async def test_weights_that_are_replaced_end_the_residency(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    found = await up(make("vllm", hub=None, revision=None, path=folder))
    (folder / "model.safetensors").touch()
    assert (await found.confirm(), found.alive) == (True, True)
    (folder / "model.safetensors").write_bytes(b"others!")
    assert (await found.confirm(), found.alive, found.died) == (False, False, False)
    (folder / "model.safetensors").write_bytes(b"weights")
    assert not await found.confirm()  # what it has read meanwhile nobody knows
    await found.stop()
    assert left(tmp_path) == []


async def test_weights_that_are_taken_away_end_the_residency(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GGUF.read_bytes())
    found = await up(make("llama.cpp", hub=None, revision=None, path=path))
    path.unlink()
    assert (await found.confirm(), found.alive) == (False, False)
    await found.stop()
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("device", "server", "seconds"),
    [
        (Device(), "llama.cpp", 120),
        (Device(), "tgi", 120),
        (Device(), "vllm", 600),
        (Device(load_timeout_s=90), "vllm", 90),
    ],
)
def test_vllm_has_longer_to_start_unless_the_operator_says_otherwise(
    device: Device, server: str, seconds: float
) -> None:
    assert device.load_timeout_of(Model(driver="process", server=server, path=GGUF)) == seconds  # type: ignore[arg-type]


async def test_a_start_that_is_cancelled_leaves_nothing(make: Make, tmp_path: Path) -> None:
    starting = asyncio.create_task(make("vllm", "--double", "hang_on_load").start())
    with anyio.fail_after(120):
        while len(left(tmp_path)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait([starting])
    assert left(tmp_path) == []


async def test_a_server_that_died_leaves_its_shards_to_the_stop(make: Make, tmp_path: Path) -> None:
    found = await up(make("tgi"))
    gone = asyncio.create_task(found.wait_exited())
    os.kill(found.pid or 0, signal.SIGKILL)
    with anyio.fail_after(60):
        await gone
    assert (found.alive, found.exit_status) == (False, -signal.SIGKILL)
    assert len(left(tmp_path)) == 1
    await found.stop()
    assert left(tmp_path) == []


async def test_a_stubborn_server_is_killed(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "STOP_S", 0.05)
    found = await up(make("vllm"))
    os.kill(found.pid or 0, signal.SIGSTOP)
    with anyio.fail_after(60):
        await found.stop()
    assert left(tmp_path) == []


async def test_what_a_killed_guard_left_is_ended_by_the_next_one(make: Make, tmp_path: Path) -> None:
    found = await up(make("tgi"))
    other = await launched.start(["sleep", "600"], {}, "another guard")
    os.kill(found.pid or 0, signal.SIGKILL)
    await make("vllm").take_over()
    assert left(tmp_path) == []
    assert other.alive
    await other.end()
    await found.stop()


async def test_the_program_knows_no_secret_but_its_key_and_strangers_do_not_know_that(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql://user:password@host/db")
    found = await up(make("vllm"))
    process = psutil.Process(found.pid)
    environment, arguments = process.environ(), process.cmdline()
    async with httpx2.AsyncClient(trust_env=False) as stranger:
        refusal = await stranger.get(f"http://127.0.0.1:{arguments[arguments.index('--port') + 1]}/v1/models")
    await found.stop()
    assert "MATHRAG_DATABASE_URL" not in environment
    assert environment["VLLM_API_KEY"] not in " ".join(arguments)
    assert refusal.status_code == 401


def test_settings_that_cannot_work_are_refused_with_the_models_name() -> None:
    with pytest.raises(DriverError, match=r"'a-model': needs a `path` or a `hub`"):
        ExternalProgramDriver("a-model", Model(driver="process", server="vllm"), Device(), "owner")


def test_ports_are_different() -> None:
    assert len(set(launched._find_free_ports(20))) == 20


# Reading ahead: what a load would read from the disk is in the page cache afterwards, and nobody is held up.

SIZE = 4 * CHUNK + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(os.urandom(SIZE))
    evict(path)
    if cached(path) > 0.5:
        pytest.skip(f"{tmp_path} is on a file system that keeps its pages in memory")
    return path


def evict(path: Path) -> None:
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path: Path) -> float:
    size = path.stat().st_size
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        kernel = ctypes.CDLL(None, use_errno=True)
        asked = kernel.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    assert asked == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) / len(pages)


async def test_a_file_is_in_the_page_cache_after_it_was_read_ahead(file: Path) -> None:
    assert await read_ahead(file) == SIZE
    assert cached(file) == 1.0


async def test_the_driver_of_a_file_reads_it_ahead(file: Path) -> None:
    await ProcessDriver("model", Model(driver="process", path=file), Device()).warm()
    assert cached(file) == 1.0


async def test_a_folder_is_all_of_its_files(file: Path) -> None:
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "more.safetensors").write_bytes(b"x" * 1000)
    assert await read_ahead(file.parent) == SIZE + 1000
    assert cached(file) == 1.0


async def test_nothing_is_read_where_memory_is_short(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for available, read in ((SIZE + RESERVE - 1, 0), (SIZE + RESERVE, SIZE)):
        memory = SimpleNamespace(available=available)
        monkeypatch.setattr(psutil, "virtual_memory", lambda memory=memory: memory)
        assert await read_ahead(file) == read
    evict(file)


async def test_a_cancelled_reading_ends_at_the_next_chunk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, go_on = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, read = asyncio.get_running_loop(), launched._read_all

    def slowly(size: int) -> bytearray:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return bytearray(size)

    def reading(path: Path, stopping: threading.Event) -> int:
        try:
            return read(path, stopping)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(launched, "bytearray", slowly, raising=False)
    monkeypatch.setattr(launched, "_read_all", reading)
    task = asyncio.create_task(read_ahead(file))
    with anyio.fail_after(60):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # at once: the thread still stands
        assert not ended.is_set()
        go_on.set()
        await ended.wait()
    assert cached(file) < 1.0


async def test_the_reading_thread_goes_last(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(size: int) -> bytearray:
        thread = threading.get_native_id()
        seen.append((psutil.Process(thread).ionice().ioclass, os.getpriority(os.PRIO_PROCESS, thread)))
        return bytearray(size)

    monkeypatch.setattr(launched, "bytearray", look, raising=False)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    await read_ahead(file)
    assert seen == [(psutil.IOPRIO_CLASS_IDLE, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


async def test_a_file_that_has_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await read_ahead(tmp_path / "nothing.gguf") == 0
    assert "not read ahead" in caplog.text


# Versions of installed programs: of a Python package from its metadata, of everything else from `--version`.

FAILS = "#!{shebang}\nexit 1\n"
PRINTS = "#!/bin/sh\necho INFO: something else\necho {version}\n"


def script_of(folder: Path, said: str) -> Path:
    path = folder / "bin" / "vllm"
    path.parent.mkdir(exist_ok=True)
    path.write_text(said)
    path.chmod(0o700)
    return path


def packaged(folder: Path, version: str, python: str = "python3.12") -> None:
    info = folder / "lib" / python / "site-packages" / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


async def test_the_version_of_a_python_program_is_read_without_starting_it(tmp_path: Path) -> None:
    packaged(tmp_path, "0.32.0+cpu")
    script = script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python"))
    assert await launched.find_version(script, VLLM) == "0.32.0+cpu"


async def test_a_link_to_a_python_program_has_its_version(tmp_path: Path) -> None:
    packaged(tmp_path, "0.32.0")
    link = tmp_path / "vllm"
    link.symlink_to(script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python")))
    assert await launched.find_version(link, VLLM) == "0.32.0"


async def test_a_package_that_was_upgraded_has_its_new_version(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0")
    script = script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python"))
    await launched.find_version(script, VLLM)
    (tmp_path / "lib" / "python3.12").rename(tmp_path / "old")
    packaged(tmp_path, "0.32.0")
    assert await launched.find_version(script, VLLM) == "0.32.0"


async def test_a_script_around_a_program_is_asked(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0")
    assert await launched.find_version(script_of(tmp_path, PRINTS.format(version="0.32.0")), VLLM) == "0.32.0"


async def test_a_program_is_asked_where_its_environment_holds_two_versions(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0", "python3.11")
    packaged(tmp_path, "0.32.0", "python3.12")
    with pytest.raises(DriverError, match=r"prints '.*', which contains no version"):
        await launched.find_version(script_of(tmp_path, FAILS.format(shebang="/bin/sh -c : python")), VLLM)


async def test_a_program_is_asked_once_as_long_as_it_is_the_same_file(tmp_path: Path) -> None:
    script = script_of(tmp_path, f"#!/bin/sh\necho x >> {tmp_path}/asked\necho text-generation-launcher 3.3.6\n")
    assert [await launched.find_version(script, TGI) for _ in range(2)] == ["3.3.6", "3.3.6"]
    assert (tmp_path / "asked").read_text() == "x\n"


async def test_a_program_that_never_names_its_version_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launched, "VERSION_ANSWER_S", 0.2)
    with pytest.raises(DriverError, match=r"vllm --version` does not answer within 0.2 s"):
        await launched.find_version(script_of(tmp_path, "#!/bin/sh\nexec sleep 600\n"), VLLM)
