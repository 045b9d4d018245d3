"""Tune the retriever's query side, and the generator by LoRA, on a graph's training questions."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from world.rule_reproduction.serving import EMBEDDINGS, FILE, command
from world.rule_reproduction.setting import Tuning

PAIRS, MESSAGES = "pairs", "messages"
"""Kinds of training data, by their names in `mathrag dataset training-data`."""
MERGED = "merged.gguf"
TENTH = 10
NEEDED = ("torch", "peft", "transformers", "gguf")
"""Packages that LoRA needs, from the extra `train`."""


class Tuned(NamedTuple):
    """The tuned models, and the reasons why others are missing."""

    places: dict[str, Path]
    """Paths: `embeddings` is a folder, `generator` a file."""
    left_out: dict[str, str]
    """Reason why a model was not tuned."""


def export(dataset: str, bank: str, folder: Path, setting: Tuning) -> None:
    """Write the training data of the service's dataset, unless it is there."""
    limits = {PAIRS: setting.questions, MESSAGES: setting.examples}
    for kind, limit in limits.items():
        if not (place := _data(folder, kind)).exists():
            options = ["--rules", bank, "--as", kind, "--limit", str(limit), "--out", str(place)]
            command("dataset", "training-data", dataset, *options)


def tune_models(folder: Path, setting: Tuning, trainer: str) -> Tuned:
    """Tune models that are not tuned yet; the generator only if `trainer` has the packages.

    Raises:
        Failed: tuning did.
    """
    places = {"embeddings": _retriever(folder, setting.retriever)}
    if missing := _find_missing(trainer):
        lacks = f"{trainer} lacks {', '.join(missing)}, which the extra `train` has"
        return Tuned(places, {"generator": lacks})
    return Tuned({**places, "generator": _generator(folder, setting.generator, trainer)}, {})


def _retriever(folder: Path, options: dict[str, Any]) -> Path:
    place = folder / "tuned-embeddings"
    if not place.exists():
        data = [str(_data(folder, PAIRS)), "--out", str(place), "--embeddings", str(EMBEDDINGS)]
        command(*data, *_to_arguments(options), module="services.retriever.tune")
    return place


def _generator(folder: Path, options: dict[str, Any], trainer: str) -> Path:
    place = folder / "tuned-generator"
    if not (place / MERGED).exists():
        data, dev = _split(folder)
        files = ["--base", str(FILE), "--data", str(data), "--dev", str(dev), "--out", str(place)]
        command(*files, *_to_arguments(options), python=trainer, module="world.lora")
    return place / MERGED


def _split(folder: Path) -> tuple[Path, Path]:
    """Split the lines into those to learn from and a tenth that chooses the epoch; each question has one line."""
    lines = _data(folder, MESSAGES).read_text("utf-8").splitlines(keepends=True)
    places = folder / "lora-train.jsonl", folder / "lora-dev.jsonl"
    for place, is_dev in zip(places, (False, True), strict=True):
        place.write_text("".join(line for at, line in enumerate(lines) if (at % TENTH == 0) == is_dev), "utf-8")
    return places


def _data(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.jsonl"


def records(tuned: Tuned) -> dict[str, Any]:
    """Read the records that the trainers wrote."""
    files = {
        what: place / "tuning.json" if what == "embeddings" else place.with_name("lora.json")
        for what, place in tuned.places.items()
    }
    return {what: json.loads(file.read_text("utf-8")) for what, file in files.items()}


def _to_arguments(options: dict[str, Any]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def _find_missing(python: str) -> list[str]:
    """List the packages that an interpreter lacks."""
    program = f"import importlib.util as u, json; print(json.dumps([n for n in {NEEDED!r} if u.find_spec(n) is None]))"
    completed = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    found: list[str] = json.loads(completed.stdout)
    return found
