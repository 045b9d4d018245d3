"""The record of a run's folder: the same run continues there, a different one is refused before it starts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import Conflict

FILE = "run.json"
DIGEST_CHARACTERS = 12
"""Characters of a digest in messages."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines a run's answers."""

    preset: str
    experiment: dict[str, Any]
    """The submitted experiment; names of corpus and questions are derived from their content."""
    models: dict[str, str | None]
    """Digest by model name; None if an external server does not tell it."""
    embeddings: dict[str, Any]
    """The configured embedder, without the folder of its file."""


def read(folder: Path) -> Record | None:
    """Return the folder's record; None if nothing was submitted from it."""
    file = folder / FILE
    return msgspec.json.decode(file.read_bytes(), type=Record) if file.is_file() else None


def write(folder: Path, record: Record) -> None:
    """Write the record atomically, when the experiment is submitted."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{FILE}"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    partial.replace(folder / FILE)


def check(folder: Path, now: Record) -> None:
    """Check that the folder holds no results of a different run.

    Raises:
        Conflict: its results belong to another run; the message says what differs.
    """
    before = read(folder)
    differing = list(list_differences(before, now)) if before is not None else []
    if differing:
        raise Conflict(
            f"{folder} holds the results of another run: {'; '.join(differing)}",
            hint=f"use --out {folder}-2 for a new run, or undo the change",
        )


def list_differences(before: Record, now: Record) -> Iterator[str]:
    """Yield each difference in words, beginning with those that are easily overlooked."""
    for name in sorted(before.models.keys() & now.models.keys()):
        old, new = before.models[name], now.models[name]
        if old != new:
            yield f"{name} was {_shorten_digest(old)} and is {_shorten_digest(new)} now (pulled again, or another file)"
    if before.models.keys() != now.models.keys():
        yield f"its models were {', '.join(sorted(before.models))}"
    if before.experiment["datasets"] != now.experiment["datasets"]:
        yield f"its problems were {_describe_problems(before)}, now {_describe_problems(now)}"
    if before.embeddings != now.embeddings:
        yield "its embedder was another one"
    for key in sorted(before.experiment.keys() | now.experiment.keys()):
        old, new = before.experiment.get(key), now.experiment.get(key)
        if key not in ("name", "datasets") and old != new:
            yield f"`{key}` was {_encode_json(old)}, now {_encode_json(new)}"


def _describe_problems(record: Record) -> str:
    return ", ".join(f"{each['dataset']} over {each['corpus']}" for each in record.experiment["datasets"])


def _shorten_digest(digest: str | None) -> str:
    return digest[:DIGEST_CHARACTERS] if digest else "unknown"


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
