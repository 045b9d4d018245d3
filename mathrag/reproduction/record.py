"""What a folder's results belong to: the same again continues, anything else is refused before it is begun."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import Conflict

FILE = "run.json"
SHOWN = 12
"""Characters of a digest that a person gets to see."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Of a run: what its answers follow from."""

    preset: str
    experiment: dict[str, Any]
    """As it was submitted; corpus and questions are named by their content."""
    models: dict[str, str | None]
    """Digest by name, as the server knows it; None: it is another's server, which says none."""
    embeddings: dict[str, Any]
    """As configured."""


def read(folder: Path) -> Record | None:
    """The folder's; None: nothing was submitted from it."""
    file = folder / FILE
    return msgspec.json.decode(file.read_bytes(), type=Record) if file.is_file() else None


def write(folder: Path, record: Record) -> None:
    """Once, when the experiment is submitted."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{FILE}"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    partial.replace(folder / FILE)


def check(folder: Path, now: Record) -> None:
    """Whether the folder may go on with this.

    Raises:
        Conflict: its results belong to something else; the message says what differs.
    """
    before = read(folder)
    differing = list(differences(before, now)) if before is not None else []
    if differing:
        raise Conflict(
            f"{folder} holds the results of another run: {'; '.join(differing)}",
            hint=f"--out {folder}-2 begins a new one; or go back to what it was",
        )


def differences(before: Record, now: Record) -> Iterator[str]:
    """In words: what a person may have changed without noticing comes first."""
    for name in sorted(before.models.keys() & now.models.keys()):
        old, new = before.models[name], now.models[name]
        if old != new:
            yield f"{name} was {_short(old)} and is {_short(new)} now (pulled again, or another file)"
    if before.models.keys() != now.models.keys():
        yield f"its models were {', '.join(sorted(before.models))}"
    if before.experiment["datasets"] != now.experiment["datasets"]:
        yield f"its problems were {_problems(before)}, now {_problems(now)}"
    if before.embeddings != now.embeddings:
        yield "its embedder was another one"
    for key in sorted(before.experiment.keys() | now.experiment.keys()):
        old, new = before.experiment.get(key), now.experiment.get(key)
        if key not in ("name", "datasets") and old != new:
            yield f"`{key}` was {_json(old)}, now {_json(new)}"


def _problems(record: Record) -> str:
    return ", ".join(f"{each['dataset']} over {each['corpus']}" for each in record.experiment["datasets"])


def _short(digest: str | None) -> str:
    return digest[:SHOWN] if digest else "unknown"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
