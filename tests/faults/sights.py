"""What the tests of the faults did and saw, kept in the repository: `docs/reference/faults.md` is written from it.

Neither times nor commits: a run that saw the same writes the same.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

REPOSITORY = Path(__file__).parents[2]
REAL, SIMULATOR = "real processes", "simulator"
FILE = Path(__file__).with_name("seen.json")


class Sight(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one test did, and what it saw."""

    produced: list[str] = []
    """How the fault was brought about, in words."""
    notes: list[str] = []
    figures: dict[str, float] = {}
    """Counts and seconds by name; the page shows their range over all tests of a fault."""


Sights = dict[str, dict[str, dict[str, Sight]]]
"""By id of the fault, back end, and test."""


class Place(NamedTuple):
    """Whose sight it is."""

    fault: str
    back_end: str
    test: str
    """pytest's name of it: `tests/faults/test_kills.py::test_...[...]`."""


def read(file: Path = FILE) -> Sights:
    """Everything that is kept."""
    return msgspec.json.decode(file.read_bytes(), type=Sights) if file.exists() else {}


def merge(kept: Sights, fresh: dict[Place, Sight | None], repository: Path = REPOSITORY) -> Sights:
    """What is kept with what a run has seen in it; None takes a sight away: its test has failed.

    A run of a part leaves the others' sights as they are; those of tests that are gone go, too.
    """
    flat = {
        Place(fault, back_end, test): sight
        for fault, back_ends in kept.items()
        for back_end, tests in back_ends.items()
        for test, sight in tests.items()
        if _exists(test, repository)
    }
    merged: Sights = {}
    for place, sight in sorted({**flat, **fresh}.items(), key=lambda item: item[0]):
        if sight is not None:
            merged.setdefault(place.fault, {}).setdefault(place.back_end, {})[place.test] = sight
    return merged


def write(sights: Sights, file: Path = FILE) -> None:
    """Keep it; sorted, so that a change is a small difference."""
    partial = file.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(sights, order="sorted")) + b"\n")
    partial.rename(file)


def _exists(test: str, repository: Path) -> bool:
    path, _, name = test.partition("::")
    file = repository / path
    function = name.partition("[")[0].rpartition("::")[2]
    return file.is_file() and (not function or f"def {function}(" in file.read_text(encoding="utf-8"))
