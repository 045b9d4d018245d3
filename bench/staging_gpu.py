"""Run `bench.staging` on a GPU capped like a 12 GB card, with random weights of Qwen2.5's shape.

    .venv/bin/pip install -e '.[gpu,train]' vllm
    .venv/bin/python -m bench.staging_gpu --cap-mib 12288 --items 40

It measures the four parts of `bench.staging` with vLLM as the model server, and the GPU's memory by NVML four times a
second, whose peak must stay under the cap. vLLM is configured to stay below the cap, and the guard refuses models
above it (`device.budget_mib`). The answers are noise: only times, loads and memory mean something. Without NVML,
PyTorch or vLLM it says what is missing and measures nothing.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import staging
from shared.settings import REPOSITORY

MIB = 1 << 20
SHAPES: dict[str, dict[str, Any]] = {
    "0.5b": {
        "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "intermediate_size": 4864, "tie_word_embeddings": True,
    },
    "3b": {
        "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
        "intermediate_size": 11008, "tie_word_embeddings": True,
    },
    "7b": {
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""The sizes in Qwen2.5's published configurations; in bfloat16 the 7B alone is above 12 GB."""
VOCABULARY = 151936
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
NEEDED = ("pynvml", "torch", "transformers", "vllm")


def main() -> None:
    """Write both models, run the four parts on the capped GPU, and print its peak memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cap-mib", type=int, default=12288)
    parser.add_argument("--judge", choices=SHAPES, default="0.5b")
    parser.add_argument("--generator", choices=SHAPES, default="3b")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"nothing is measured here: {', '.join(missing)} is missing\n{__doc__}")
    uuid, total, before = gpu()
    with tempfile.TemporaryDirectory() as folder:
        for role, shape in (("judge", options.judge), ("generator", options.generator)):
            write_model(Path(folder) / role, SHAPES[shape])
        share = 0.9 * options.cap_mib / total
        os.environ["MATHRAG_CONFIG"] = str(write_configuration(Path(folder), uuid, options.cap_mib, share))
        sys.argv[1:] = ["--items", str(options.items), "--rounds", str(options.rounds)]
        with peak(uuid) as most:
            staging.main()
        print(f"\npeak of GPU memory: {most() - before:.0f} MiB of {options.cap_mib} MiB")


def gpu() -> tuple[str, float, float]:
    """Return the first GPU's UUID, its memory and the memory in use, in MiB."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return pynvml.nvmlDeviceGetUUID(handle), memory.total / MIB, memory.used / MIB


def write_model(folder: Path, shape: dict[str, Any]) -> None:
    """Write random weights of this shape from a fixed seed, with the project's tokenizer and a plain chat template."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY, max_position_embeddings=32768, torch_dtype="bfloat16", **shape
    )
    model = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    model.save_pretrained(folder)
    words = REPOSITORY / "models" / "static-embeddings" / "tokenizer.json"
    special = {"eos_token": "[PAD]", "pad_token": "[PAD]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(words), **special)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)


def write_configuration(folder: Path, uuid: str, cap_mib: int, share: float) -> Path:
    """Write a configuration of both models on the capped GPU, as JSON; a server may use `share` of its memory."""
    command = ["vllm", "serve", "--enforce-eager", "--gpu-memory-utilization", f"{share:.4f}"]
    models = {
        role: {
            "driver": "process", "server": "vllm", "path": str(folder / role), "context": 2048, "command": command,
            "footprint_mib": int(0.9 * cap_mib),
        }
        for role in ("judge", "generator")
    }  # fmt: skip
    settings = {
        "device": {"id": uuid, "budget_mib": cap_mib, "residency": "staged", "load_timeout_s": 600},
        "models": models,
        "roles": {"judge": "judge", "generate": "generator"},
    }
    path = folder / "mathrag.yaml"
    path.write_bytes(msgspec.json.encode(settings))
    return path


@contextmanager
def peak(uuid: str) -> Iterator[Any]:
    """Yield a function that returns the peak of the memory in use since, in MiB."""
    import pynvml

    handle, seen, ended = pynvml.nvmlDeviceGetHandleByUUID(uuid), [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.25):
            seen[0] = max(seen[0], pynvml.nvmlDeviceGetMemoryInfo(handle).used / MIB)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: seen[0]
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
