"""Measure calls per second through API, Celery tick, worker, guard and back, with models that answer at once.

    .venv/bin/python -m bench.throughput --items 5000 --chunk 16

This is the runtime's own cost: each sample makes a search, ten judgements and a generation, none shared with another,
and every commit is durable. The rate is stored replies over the job's wall time. Search is made cheap (16 dimensions,
rare words), because `bench/retrieval.py` measures it.
"""

import argparse
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.numpy import load_file, save_file

from bench.running import Stack, stack
from shared.settings import REPOSITORY

DOCUMENTS = 8
"""Documents written for each question; the rest of its ten belong to other questions."""
WORDS = "so the sum of both sides is equal to twice the first term and we divide by three to find the answer".split()
PARAMS = {"gate": {"tau": 1.0, "items": 10, "top": 2, "min_pairs": 2}}
"""With a threshold of 1 the gate always chooses the judge."""


def main() -> None:
    """Run one job and print its calls per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--chunk", type=int, default=16, help="calls claimed together")
    parser.add_argument("--judges", type=int, default=1, help="workers of the judge lane")
    options = parser.parse_args()
    with throughput_stack(options.chunk, options.judges) as running:
        furnish(running, options.items)
        made = rate(running, "first")
        print(f"items {options.items}, chunk {options.chunk}, judges {options.judges}: {made:.0f} calls/s")


def rate(running: Stack, name: str) -> float:
    """Run one job; return its stored replies per second of its wall time."""
    found = running.run(name=name, dataset="items", corpus="documents", pipeline="mathrag-gate", params=PARAMS)
    if found["state"] != "completed":
        raise SystemExit(f"the job is {found['state']}: {found['reason']}")
    seconds = (datetime.fromisoformat(found["ended_at"]) - datetime.fromisoformat(found["created_at"])).total_seconds()
    calls = {role: stage["done"] for role, stage in found["stages"].items()}
    loads = running.get(f"/v1/jobs/{found['id']}/report")["model_loads"]
    print(f"  {calls} in {seconds:.1f} s, {loads} model loads")
    return float(sum(calls.values()) / seconds)


@contextmanager
def throughput_stack(chunk: int, judges: int) -> Iterator[Stack]:
    """Run a stack whose models answer at once."""
    with TemporaryDirectory() as folder:
        embeddings = small_embeddings(Path(folder))
        models = {name: {"driver": "scripted", "footprint_mib": 100, "parallel": 64} for name in ("j", "g")}
        environment = {
            "MATHRAG_MODELS": json.dumps(models),
            "MATHRAG_ROLES": '{"judge": "j", "generate": "g"}',
            "MATHRAG_RETRIEVAL__EMBEDDINGS__PATH": str(embeddings),
            "MATHRAG_WORKERS__CHUNK": str(chunk),
            "MATHRAG_WORKERS__JUDGES": str(judges),
            # Models that answer at once leave no time for commits, so more chunks are in flight than real ones need.
            "MATHRAG_WORKERS__STREAMS": "4",
        }
        with stack(**environment) as running:
            yield running


def small_embeddings(folder: Path) -> Path:
    """Write the shipped embeddings, cut to 16 dimensions."""
    shipped = REPOSITORY / "models" / "static-embeddings"
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((shipped / name).read_bytes())
    tensors = load_file(shipped / "model.safetensors")
    tensors["embeddings"] = tensors["embeddings"][:, :16].copy()
    save_file(tensors, folder / "model.safetensors")
    return folder


def furnish(running: Stack, items: int) -> None:
    """Upload questions with a rare word each, and documents of about 1.2 kB that contain it."""
    dice = random.Random(1)
    running.upload(
        "corpora", "documents", (line({"text": text(item, dice)}) for item in range(items) for _ in range(DOCUMENTS))
    )
    running.upload(
        "datasets", "items", (line({"question": f"What is w{item}x of {dice.random()}?"}) for item in range(items))
    )


def text(item: int, dice: random.Random) -> str:
    """Write a document about one item."""
    return f"w{item}x " + " ".join(dice.choices(WORDS, k=270))


def line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


if __name__ == "__main__":
    main()
