"""Run `bench.staging` on a GPU that has no more memory left than a 12 GB card, with models of real size.

    .venv/bin/pip install gguf nvidia-ml-py
    .venv/bin/python -m bench.staging_gpu --cap-mib 12288 --items 40 --command llama-server --n-gpu-layers 99

`--command` comes last and names a `llama-server` that was built for the GPU. A process of its own holds all memory
above the cap, so that what does not fit fails. The loads' memory is printed as the guard measured it.

The models are the shipped ones, padded with zeros to the shape of published models: same answers, but the memory, the
load and the arithmetic of the larger shape. The guard estimates their memory from the file.
"""

import argparse
import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench import staging
from services.guard.memory import NvmlMemory
from shared.settings import REPOSITORY

MIB = 1 << 20
SIZES = (
    "qwen2.embedding_length", "qwen2.block_count", "qwen2.attention.head_count", "qwen2.attention.head_count_kv",
    "qwen2.feed_forward_length",
)  # fmt: skip
"""Fields of a GGUF file, in the order of `Shape`."""


class Shape(NamedTuple):
    """The shape of a transformer of the kind of Llama and Qwen2."""

    embedding: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int

    @property
    def head(self) -> int:
        """Numbers per head."""
        return self.embedding // self.heads


SHAPES = {
    "tiny": Shape(512, 6, 8, 4, 1024),
    "3b": Shape(3072, 28, 24, 8, 8192),
    "4b": Shape(2560, 40, 20, 20, 6912),
}
"""`3b` and `4b` are the published configurations of Llama-3.2-3B and Qwen1.5-4B, with the vocabulary of the shipped
models; `tiny` is for a trial without a GPU."""


def main() -> None:
    """Write both models, and run the four parts of `bench.staging` on what is left of the GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cap-mib", type=int, default=12288)
    parser.add_argument("--judge", choices=SHAPES, default="3b")
    parser.add_argument("--generator", choices=SHAPES, default="4b")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--command", nargs=argparse.REMAINDER, default=["llama-server", "--n-gpu-layers", "99"])
    options = parser.parse_args()
    uuid = find_gpu()
    with tempfile.TemporaryDirectory() as folder:
        for role, shape in (("judge", options.judge), ("generator", options.generator)):
            write_model(REPOSITORY / "models" / f"world-{role}-f16.gguf", Path(folder) / f"{role}.gguf", SHAPES[shape])
        os.environ["MATHRAG_CONFIG"] = str(write_configuration(Path(folder), uuid, options.cap_mib, options.command))
        sys.argv[1:] = [f"--{name}={getattr(options, name)}" for name in ("items", "rounds", "jobs")]
        with hold_all_but(options.cap_mib):
            print(f"{asyncio.run(NvmlMemory(uuid).read()).free:.0f} MiB of the GPU are free", flush=True)
            staging.main()


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


# Models of real size with the answers of small ones


def write_model(source: Path, target: Path, shape: Shape) -> None:
    """Write the model in `source` padded to `shape`, with the same answers up to rounding.

    Padding adds nothing to a sum. Three things depend on a size and are scaled back: the normalisation divides by the
    mean over all numbers, the attention by the square root of a head's size, and the positions of a head's numbers
    choose the frequencies by which they are rotated. No size of `shape` may be smaller than the model's, and a head's
    must be a multiple.
    """
    import gguf

    reader = gguf.GGUFReader(str(source))
    small = Shape(*(int(reader.fields[name].contents()) for name in SIZES))
    writer = gguf.GGUFWriter(str(target), "qwen2")
    _write_fields(reader, writer, small, shape)
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


def _write_fields(reader: Any, writer: Any, small: Shape, shape: Shape) -> None:
    """Copy what is not a size; `epsilon` is added to a mean that the padding makes smaller."""
    epsilon = "qwen2.attention.layer_norm_rms_epsilon"
    changed = {
        **dict(zip(SIZES, shape, strict=True)),
        epsilon: reader.fields[epsilon].contents() * small.embedding / shape.embedding,
    }
    for field in reader.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            kind, of = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, changed.get(field.name, field.contents()), kind, of)


def _pad(part: str, values: NDArray[Any], small: Shape, shape: Shape) -> NDArray[Any]:
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


def _place_heads(small: Shape, shape: Shape, *, queries: bool, rotated: bool) -> NDArray[np.int64]:
    """Return where the numbers of the small model's heads stand among those of the larger one.

    A head of queries must read the same head of keys, and a rotated number must keep its frequency, which falls with
    its place in its half of the head, in steps that a larger head makes finer.
    """
    group, larger = small.heads // small.kv_heads, shape.heads // shape.kv_heads
    heads = [i // group * larger + i % group for i in range(small.heads)] if queries else range(small.kv_heads)
    half, step = np.arange(small.head // 2), shape.head // small.head
    within = np.concatenate([half * step, shape.head // 2 + half * step]) if rotated else np.arange(small.head)
    return np.concatenate([head * shape.head + within for head in heads])


# The GPU


def find_gpu() -> str:
    """Return the UUID of the first GPU."""
    import pynvml

    pynvml.nvmlInit()
    return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))


@contextmanager
def hold_all_but(left_mib: int) -> Iterator[int]:
    """Leave this much of the first GPU's memory free, and yield the id of the process that holds the rest."""
    command = [sys.executable, "-c", f"from bench.staging_gpu import hold; hold({left_mib})"]
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


if __name__ == "__main__":
    main()
