"""What the tests of the faults did and saw, kept in the repository: `docs/reference/faults.md` is written from it.

Neither times nor commits: a run that saw the same writes the same. `python -m tests.faults.report` writes the page
anew; it says what is missing, and ends with 1 if anything is.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.faults.catalogue import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]
REAL, SIMULATOR = "real processes", "simulator"
SIGHTS = Path(__file__).with_name("seen.json")


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


def read_sights(file: Path = SIGHTS) -> Sights:
    """Everything that is kept."""
    return msgspec.json.decode(file.read_bytes(), type=Sights) if file.exists() else {}


def merge_sights(kept: Sights, fresh: dict[Place, Sight | None], repository: Path = REPOSITORY) -> Sights:
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


def write_sights(sights: Sights, file: Path = SIGHTS) -> None:
    """Keep it; sorted, so that a change is a small difference."""
    partial = file.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(sights, order="sorted")) + b"\n")
    partial.rename(file)


def _exists(test: str, repository: Path) -> bool:
    path, _, name = test.partition("::")
    file = repository / path
    function = name.partition("[")[0].rpartition("::")[2]
    return file.is_file() and (not function or f"def {function}(" in file.read_text(encoding="utf-8"))


PAGE = REPOSITORY / "docs" / "reference" / "faults.md"
NOT_YET = "not yet"
MOST_SIMULATED = 12
"""Most ids that no real process has met."""

FAMILIES = {
    "P": "Processes",
    "R": "Redis",
    "D": "PostgreSQL",
    "Q": "Messages",
    "T": "Time",
    "B": "Model servers and devices",
    "S": "Data",
    "C": "Control",
    "H": "Hosts",
    "V": "Versions and data",
    "X": "Hostile input",
    "L": "A client's pace",
    "U": "A client's processor time and memory",
}

TOP = """\
# Faults

*Written by `make faults` from `tests/faults/catalogue.py` and from what the tests saw; do not edit.*

What the service is held against, by id: how each fault is brought about and where, what is promised although it
happens, and what was seen. Whatever happens, the job ends by itself, and its audit (`mathrag audit JOB`) finds nothing
lost, nothing doubled and no two residencies of a device that overlap: every test ends with that.

```sh
make faults              # all of them; afterwards this page says what was seen
make faults K=P6         # one id; several: K=P6,P7
```

Figures are the range over all tests of an id in the last run that saw it, on the machine of that run.
Why one vocabulary has two back ends:
[decision 25](../explanation/decisions/25-faults-are-simulated-and-played.md).
"""


def render(faults: Mapping[str, Fault], seen: Sights) -> str:
    """Write the page docs/reference/faults.md."""
    parts = [TOP]
    for letter, title in FAMILIES.items():
        rows = [_row(fault, seen.get(id_, {})) for id_, fault in faults.items() if id_.startswith(letter)]
        parts.append("\n".join([f"## {title}", "", _line(HEADER), "|---" * len(HEADER) + "|", *rows]) + "\n")
    return "\n".join(parts)


HEADER = ("id", "what happens", "how it is produced", "where", "what is promised", "what was seen")


def _row(fault: Fault, back_ends: Mapping[str, Mapping[str, Sight]]) -> str:
    seen = [sight for tests in back_ends.values() for sight in tests.values()]
    where = "both" if len(back_ends) > 1 else next(iter(back_ends), NOT_YET)
    produced = _join(how for sight in seen for how in sight.produced)
    return _line((f"**{fault.id}**", fault.what, produced, where, fault.promise or NOT_YET, _describe_sights(seen)))


def _describe_sights(seen: list[Sight]) -> str:
    notes = [note for sight in seen for note in sight.notes]
    names = dict.fromkeys(name for sight in seen for name in sight.figures)
    ranges = [f"{name}: {_range([sight.figures[name] for sight in seen if name in sight.figures])}" for name in names]
    return _join([*notes, *ranges])


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _join(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words)) or NOT_YET


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def list_missing(faults: Mapping[str, Fault], seen: Sights) -> list[str]:
    """List what the table lacks: promises, results, and real runs if too many faults were only simulated."""
    lacks = [f"{id_}: no promise" for id_, fault in faults.items() if not fault.promise]
    lacks += [f"{id_}: nobody has seen it" for id_ in faults if not seen.get(id_)]
    simulated = [id_ for id_ in faults if list(seen.get(id_, ())) == [SIMULATOR]]
    if len(simulated) > MOST_SIMULATED:
        lacks.append(f"more than {MOST_SIMULATED} on the simulator alone: {', '.join(simulated)}")
    return lacks


def write_page() -> None:
    """Write the page from what is kept."""
    PAGE.write_text(render(FAULTS, read_sights()), encoding="utf-8")


if __name__ == "__main__":
    write_page()
    lacking = list_missing(FAULTS, read_sights())
    sys.stdout.write("".join(f"{lack}\n" for lack in lacking))
    sys.exit(1 if lacking else 0)
