"""Gain of staging: a job in stages against other orders of the same prompts on the same models, also on a GPU."""

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx2
import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from services.guard.app import make_driver
from services.guard.drivers.ports import ModelServer
from services.guard.memory import NvmlMemory
from shared.calls import Decoding, Message, ModelCall, Request, seed_of
from shared.lease.lease import GuardClient
from shared.models.chat import ChatFailed
from shared.rag.prompts import render_request
from shared.settings import REPOSITORY, Model, Settings
from shared.storage.database import Database, sql
from shared.storage.provenance import LibraryCache
from tools.bench import Row, Rows, benchmark, in_turn
from tools.bench.stack import ENDED, JUDGED, Stack, check_completed, processes_below, seconds_of, start_stack

CALLS = sql("""
    SELECT DISTINCT ON (c.id) c.id, c.key, c.role, c.request, s.ordinal
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    WHERE j.public_id = :job AND c.role IN ('judge', 'generate') ORDER BY c.id, s.kind = 'prepare', s.ordinal""")
ROLES = ("judge", "generate")
_REQUEST = msgspec.json.Decoder(Request)

WINDOW = 10
"""Requests in flight that a common model swapper allows per model."""
VICTIMS = ("judge", "generator", "guard", "orchestrator", "retriever", "redis", "postgres")
MEMORY = """
    SELECT m.name, m.footprint_mib AS declared, count(*) AS loads,
           min(CAST(r.measured ->> 'loaded_mib' AS int)) AS least,
           max(CAST(r.measured ->> 'loaded_mib' AS int)) AS most, max(CAST(r.measured ->> 'peak_mib' AS int)) AS peak
    FROM residencies r JOIN models m ON r.models = ARRAY[m.id] WHERE r.measured ->> 'loaded_mib' IS NOT NULL
    GROUP BY 1, 2 ORDER BY 1"""
OPEN = "SELECT epoch, models FROM residencies WHERE state = 'open' ORDER BY epoch DESC LIMIT 1"
MIB = 1 << 20
SIZES = (
    "qwen2.embedding_length", "qwen2.block_count", "qwen2.attention.head_count", "qwen2.attention.head_count_kv",
    "qwen2.feed_forward_length",
)  # fmt: skip
"""Fields of a GGUF file, in the order of `Shape`."""


class TransformerShape(NamedTuple):
    """The shape of a transformer of the kind of Llama and Qwen2."""

    embedding: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int

    @property
    def head(self) -> int:
        return self.embedding // self.heads


SHAPES = {
    "tiny": TransformerShape(512, 6, 8, 4, 1024),
    "3b": TransformerShape(3072, 28, 24, 8, 8192),
    "4b": TransformerShape(2560, 40, 20, 20, 6912),
}
"""`3b` and `4b` are the published configurations of Llama-3.2-3B and Qwen1.5-4B, with the vocabulary of the shipped
models; `tiny` is for a trial without a GPU."""


class SentPrompt(NamedTuple):
    """A prompt with its decoding and seed, as the guard sent it."""

    text: str | tuple[Message, ...]
    decoding: Decoding
    seed: int


Sample = dict[str, list[SentPrompt]]
"""The prompts of one sample by role."""


async def samples_of(database_url: str, job: str) -> list[Sample]:
    """Read every prompt that the job sent; one that several samples share is given to the first that needed it."""
    database = Database(database_url, pinned=False)
    async with database.statement() as connection:
        rows = (await connection.execute(CALLS, {"job": job})).all()
        requests = [(row, _REQUEST.decode(row.request)) for row in rows]
        documents, templates = await LibraryCache().load_texts(connection, [request for _, request in requests])
    await database.close()
    samples: dict[int, Sample] = {}
    for row, request in requests:
        if request.decoding is not None:
            prompt = SentPrompt(render_request(request, documents, templates), request.decoding, seed_of(row.key))
            samples.setdefault(row.ordinal, {}).setdefault(row.role, []).append(prompt)
    return [samples[ordinal] for ordinal in sorted(samples)]


def prompts_of_roles(samples: Sequence[Sample]) -> Sample:
    return {role: [prompt for sample in samples for prompt in sample.get(role, ())] for role in ROLES}


class BareDevice:
    """Holds one model at a time and counts its loads."""

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        self._settings = Settings()
        self._models = models or self._settings.models
        self._role: str | None = None
        self._server: ModelServer | None = None
        self.loads = 0

    async def load(self, role: str) -> ModelServer:
        """Return the role's model, after the other one was unloaded."""
        if self._server is None or role != self._role:
            await self.clear()
            name = self._name(role)
            self._server = await make_driver(name, self._models[name], self._settings).start()
            self._role = role
            self.loads += 1
        return self._server

    async def answer(self, role: str, prompts: Sequence[SentPrompt]) -> float:
        """Send all prompts, as many at once as the model has slots; return the seconds without the load."""
        server, slots = await self.load(role), asyncio.Semaphore(self._models[self._name(role)].parallel)

        async def ask(prompt: SentPrompt) -> None:
            async with slots:
                with suppress(ChatFailed):  # a prompt that does not fit is refused here as in the job
                    await server.complete(prompt.text, prompt.decoding, prompt.seed)

        began = time.monotonic()
        await asyncio.gather(*map(ask, prompts))
        return time.monotonic() - began

    async def clear(self) -> None:
        if self._server is not None:
            await self._server.stop()
        self._server = self._role = None

    def _name(self, role: str) -> str:
        return {str(each): name for each, name in self._settings.roles.items()}[role]


async def time_roles(prompts: Sample, models: Mapping[str, Model] | None = None) -> float:
    """Load each model and send it its prompts, one model after the other; return the seconds, loads included."""
    began, device = time.monotonic(), BareDevice(models)
    for role in ROLES:
        await device.answer(role, prompts[role])
    await device.clear()
    return time.monotonic() - began


@benchmark
def staging(items: int = 40, rounds: int = 2) -> Rows:
    """Compare a job through the service with bare scripts in other orders; `MATHRAG_CONFIG` names other models."""
    with start_stack() as running:
        running.upload_world(items)
        first = running.complete(name="first", **JUDGED)
        orders = list(compare_orders(running, asyncio.run(samples_of(running.database_url(), first["id"])), rounds))
        yield from orders
        seconds = [float(str(row["median, s"])) for row in orders]
        yield seconds[-1] / seconds[0]


@benchmark
def staged_service(items: int = 40, rounds: int = 3, jobs: int = 16) -> Rows:
    """Measure a staged service in three parts; `MATHRAG_CONFIG` names other models.

    The cost of a call through the guard against one straight to its model server; the loads of `jobs` at once against
    one after the other; the delay of a job in which a process is killed halfway.
    """
    with start_stack() as running:
        running.upload_world(items)
        first = running.complete(name="first", **JUDGED)
        samples = asyncio.run(samples_of(running.database_url(), first["id"]))
        yield from cost_of_guard(running, prompts_of_roles(samples)["generate"], rounds)
        for row in running.rows(MEMORY):
            yield {f"{name}, MiB" if name in ("declared", "least", "most", "peak") else name: value
                   for name, value in row._mapping.items()}  # fmt: skip
        yield from compare_merging(running, jobs)
        yield from kills(running, running.report(first)["calls_made"])


def compare_orders(running: Stack, samples: Sequence[Sample], rounds: int) -> Iterator[Row]:
    """Compare the whole service in stages with bare scripts: one in the same order, as two loops, and two in others."""
    loads: dict[str, int] = {}

    def staged() -> float:
        before, job = running.loads(), running.complete(name=f"staged-{time.monotonic_ns()}", **JUDGED)
        loads["staged"] = running.loads() - before
        return seconds_of(job)

    def order(name: str, size: int) -> Callable[[], float]:
        def run() -> float:
            with empty_device(running):
                seconds, loads[name] = asyncio.run(in_windows(samples, size))
            return seconds

        return run

    sides = {"two loops": len(samples), f"window of {WINDOW}": WINDOW, "per sample": 1}
    orders = {"staged": staged, **{name: order(name, size) for name, size in sides.items()}}
    for row in in_turn(orders, rounds):
        yield {**row, "loads": loads[str(row["measured"])], "samples": len(samples)}


async def in_windows(samples: Sequence[Sample], size: int) -> tuple[float, int]:
    """Judge `size` samples, flip, generate their answers, flip, and so on; return seconds and loads."""
    began, device = time.monotonic(), BareDevice()
    for at in range(0, len(samples), size):
        prompts = prompts_of_roles(samples[at : at + size])
        for role in ROLES:
            if prompts[role]:
                await device.answer(role, prompts[role])
    await device.clear()
    return time.monotonic() - began, device.loads


def cost_of_guard(running: Stack, prompts: list[SentPrompt], rounds: int) -> Iterator[Row]:
    """Time the generator's prompts through the guard, with epoch check and receipts, and straight to a server."""

    async def answer_twice() -> float:
        """Time the second pass, because the guard's server has also answered all prompts before."""
        device = BareDevice()
        await device.answer("generate", prompts)
        seconds = await device.answer("generate", prompts)
        await device.clear()
        return seconds

    def straight() -> float:
        with empty_device(running):
            return asyncio.run(answer_twice())

    def guarded() -> float:
        running.complete(name=f"loading-{time.monotonic_ns()}", **JUDGED)  # it leaves the generator resident
        (resident,) = running.rows(OPEN)
        return asyncio.run(time_guarded(running, resident, prompts))

    found = list(in_turn({"straight to the model": straight, "through the guard": guarded}, rounds))
    bare, extra = (float(str(row["median, s"])) for row in found)
    for row, more in zip(found, (0.0, extra - bare), strict=True):
        yield {**row, "more, ms a call": 1000 * more / len(prompts)}


async def time_guarded(running: Stack, resident: Any, prompts: list[SentPrompt]) -> float:
    calls = [
        ModelCall(id=number, model_id=resident.models[0], prompt=each.text, decoding=each.decoding, seed=each.seed)
        for number, each in enumerate(prompts)
    ]
    client = GuardClient(running.service_url("guard"), running.service_key())
    began = time.monotonic()
    async for completion in client.run(resident.epoch, calls):
        if completion.failure is not None:
            raise SystemExit(f"the guard answered {completion.failure}: {completion.detail}")
    seconds = time.monotonic() - began
    await client.close()
    return seconds


@contextmanager
def empty_device(running: Stack) -> Iterator[None]:
    """Keep the service's models off the devices, whose memory may not hold another server."""
    devices = [device["device"] for device in running.get("/v1/gpus")]
    for device in devices:
        running.api.post(f"/v1/gpus/{device}/drain").raise_for_status()
    while any(device["models"] for device in running.get("/v1/gpus")):
        time.sleep(0.1)
    yield
    for device in devices:
        running.api.post(f"/v1/gpus/{device}/release").raise_for_status()


def compare_merging(running: Stack, jobs: int) -> Iterator[Row]:
    """Compare jobs run one after the other with jobs submitted at once."""

    def submit_all() -> None:
        for job in [running.submit(name=f"merged-{number}", **JUDGED) for number in range(jobs)]:
            running.wait(job)

    def run_all() -> None:
        for number in range(jobs):
            running.run(name=f"alone-{number}", **JUDGED)

    alone = None
    for name, run in (("one after the other", run_all), ("at once", submit_all)):
        before, began = running.loads(), time.monotonic()
        run()
        seconds = time.monotonic() - began
        alone = alone or seconds
        yield {f"{jobs} jobs": name, "loads": running.loads() - before, "seconds": seconds, "share": seconds / alone}


def kills(running: Stack, made: dict[str, int]) -> Iterator[Row]:
    """Kill each process once, when half of a stage's calls are answered, and compare with an undisturbed job."""
    calm = median(seconds_of(running.complete(name=f"calm-{number}", **JUDGED)) for number in range(3))
    for victim in VICTIMS:
        before, stage = running.loads(), "generate" if victim == "generator" else "judge"
        job = running.submit(name=f"without-{victim}", **JUDGED)
        wait_until(running, job, partial(has_done, stage, made[stage] / 2))
        kill(running, victim)
        seconds = seconds_of(check_completed(wait_until(running, job, lambda found: found["state"] in ENDED)))
        yield {
            "killed": victim, "seconds": seconds, "longer, s": seconds - calm, "over undisturbed": seconds / calm,
            "loads": running.loads() - before,
        }  # fmt: skip


def has_done(stage: str, calls: float, job: dict[str, Any]) -> bool:
    """Tell whether this many calls of a stage are answered.

    Raises:
        SystemExit: the job has ended before.
    """
    if job["state"] in ENDED:
        raise SystemExit(f"the job was {job['state']} before {calls:g} calls of {stage} were answered")
    return bool(job["stages"].get(stage, {}).get("done", 0) >= calls)


def kill(running: Stack, name: str) -> None:
    """Kill a child of the stack and its children by SIGKILL, parents first, once it is ready."""
    while (pid := running.pid(name)) is None:
        time.sleep(0.05)
    for process in processes_below(pid):
        with suppress(psutil.NoSuchProcess):  # some go with their parent
            process.kill()


def wait_until(running: Stack, job: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the job's document once `holds`; errors are ignored, because the API may just have been killed."""
    while True:
        with suppress(httpx2.HTTPError):
            document: dict[str, Any] = running.get(f"/v1/jobs/{job}")
            if holds(document):
                return document
        time.sleep(0.05)


@benchmark
def staging_gpu(
    cap_mib: int = 12288, judge: str = "3b", generator: str = "4b", items: int = 40, rounds: int = 3, jobs: int = 16,
    command: tuple[str, ...] = ("llama-server", "--n-gpu-layers", "99"),
) -> Rows:  # fmt: skip
    """Run `staging` and `staged-service` on a GPU with as much memory as a 12 GB card, with models of real size.

        .venv/bin/pip install gguf nvidia-ml-py

    `--command` comes last and names a `llama-server` that was built for the GPU. A separate process holds all memory
    above the cap, so that models that do not fit fail. The models are the shipped ones, padded with zeros to the shape
    of published models: same answers, but the memory, the load and the arithmetic of the larger shape. The guard
    estimates their memory from the file. Shapes: `3b` and `4b`; `tiny` for a trial.
    """
    uuid = find_gpu()
    with tempfile.TemporaryDirectory() as folder:
        for role, shape in (("judge", judge), ("generator", generator)):
            write_model(REPOSITORY / "models" / f"world-{role}-f16.gguf", Path(folder) / f"{role}.gguf", SHAPES[shape])
        os.environ["MATHRAG_CONFIG"] = str(write_configuration(Path(folder), uuid, cap_mib, list(command)))
        with hold_all_but(cap_mib):
            yield f"{asyncio.run(NvmlMemory(uuid).read()).free:.0f} MiB of the GPU are free"
            yield from staging(items, rounds)
            yield from staged_service(items, rounds, jobs)


def write_configuration(folder: Path, uuid: str, cap_mib: int, command: list[str]) -> Path:
    """Write a configuration of both models on the GPU, as JSON; nine tenths of the cap are for models."""
    models = {
        role: {
            "driver": "process", "server": "llama.cpp", "path": str(folder / f"{role}.gguf"), "command": command,
            "context": 2048, "parallel": 4,
        }
        for role in ("judge", "generator")
    }  # fmt: skip
    settings = {
        "device": {"id": uuid, "budget_mib": int(0.9 * cap_mib), "residency": "staged", "load_timeout_s": 600},
        "models": models,
        "roles": {"judge": "judge", "generate": "generator"},
    }
    path = folder / "mathrag.yaml"
    path.write_bytes(msgspec.json.encode(settings))
    return path


def write_model(source: Path, target: Path, shape: TransformerShape) -> None:
    """Write the model in `source` padded to `shape`, with the same answers up to rounding.

    Padding adds nothing to a sum. Three things depend on a size and are scaled back: the normalisation divides by the
    mean over all numbers, the attention by the square root of a head's size, and the positions of a head's numbers
    choose the frequencies by which they are rotated. No size of `shape` may be smaller than the model's, and a head's
    must be a multiple.
    """
    import gguf

    reader = gguf.GGUFReader(str(source))
    small = TransformerShape(*(int(reader.fields[name].contents()) for name in SIZES))
    writer = gguf.GGUFWriter(str(target), "qwen2")
    # Copy all fields that are not sizes; `epsilon` is added to a mean that the padding makes smaller.
    epsilon = "qwen2.attention.layer_norm_rms_epsilon"
    changed = {
        **dict(zip(SIZES, shape, strict=True)),
        epsilon: reader.fields[epsilon].contents() * small.embedding / shape.embedding,
    }
    for field in reader.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            kind, of = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, changed.get(field.name, field.contents()), kind, of)
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    for name, values in stored.items():
        if not name.startswith("blk."):
            writer.add_tensor(name, _pad(name, values, small, shape))
    for layer in range(shape.layers):
        for name in (each for each in stored if each.startswith("blk.0.")):
            part = name.removeprefix("blk.0.")
            values = stored.get(f"blk.{layer}.{part}", np.zeros_like(stored[name]))
            writer.add_tensor(f"blk.{layer}.{part}", _pad(part, values, small, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pad(part: str, values: NDArray[Any], small: TransformerShape, shape: TransformerShape) -> NDArray[Any]:
    """Return a weight [out, in], a bias [out] or a norm [embedding] in the larger shape."""
    name, _, _ = part.rpartition(".")
    embedding = (np.arange(small.embedding), shape.embedding)
    feed_forward = (np.arange(small.feed_forward), shape.feed_forward)
    rows, height = {
        "token_embd": (np.arange(len(values)), len(values)),
        "attn_q": (_place_heads(small, shape, queries=True, rotated=True), shape.heads * shape.head),
        "attn_k": (_place_heads(small, shape, queries=False, rotated=True), shape.kv_heads * shape.head),
        "attn_v": (_place_heads(small, shape, queries=False, rotated=False), shape.kv_heads * shape.head),
        "ffn_gate": feed_forward,
        "ffn_up": feed_forward,
    }.get(name, embedding)
    columns, width = {
        "attn_output": (_place_heads(small, shape, queries=True, rotated=False), shape.heads * shape.head),
        "ffn_down": feed_forward,
    }.get(name, embedding)
    if name == "attn_q":
        values = values * values.dtype.type(np.sqrt(shape.head / small.head))
    if name.endswith("norm"):
        values = values * values.dtype.type(np.sqrt(small.embedding / shape.embedding))
    if values.ndim == 1:
        padded = np.zeros(height, values.dtype)
        padded[rows] = values
        return padded
    padded = np.zeros((height, width), values.dtype)
    padded[np.ix_(rows, columns)] = values
    return padded


def _place_heads(
    small: TransformerShape, shape: TransformerShape, *, queries: bool, rotated: bool
) -> NDArray[np.int64]:
    """Return the positions of the small model's heads among those of the larger one.

    A head of queries must read the same head of keys, and a rotated number must keep its frequency, which falls with
    its place in its half of the head, in steps that a larger head makes finer.
    """
    group, larger = small.heads // small.kv_heads, shape.heads // shape.kv_heads
    heads = [i // group * larger + i % group for i in range(small.heads)] if queries else range(small.kv_heads)
    half, step = np.arange(small.head // 2), shape.head // small.head
    within = np.concatenate([half * step, shape.head // 2 + half * step]) if rotated else np.arange(small.head)
    return np.concatenate([head * shape.head + within for head in heads])


def find_gpu() -> str:
    import pynvml

    pynvml.nvmlInit()
    return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))


@contextmanager
def hold_all_but(left_mib: int) -> Iterator[int]:
    """Leave this much of the first GPU's memory free, and yield the id of the process that holds the rest."""
    command = [sys.executable, "-c", f"from tools.bench.staging import hold; hold({left_mib})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as holder:
        try:
            if holder.stdout is None or not holder.stdout.readline():
                raise SystemExit("the memory above the cap cannot be held")
            yield holder.pid
        finally:
            holder.kill()


def hold(left_mib: int) -> None:
    """Hold the first GPU's memory but for `left_mib` until the standard input ends. Needs only the driver."""
    cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    calls = [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(free.value - left_mib * MIB)),
    ]
    if any(calls):
        raise SystemExit(f"CUDA's driver answered {calls}")
    print("held", flush=True)
    sys.stdin.read()
