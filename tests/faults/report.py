"""Keep the results of the fault tests in the repository and write `docs/reference/faults.md` from them.

The results hold no times and no commits, so a run with equal results writes an equal file.
`python -m tests.faults.report` writes the page, prints missing entries, and exits with 1 if there are any.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.faults.catalogue import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]
REAL, SIMULATOR = "real processes", "simulator"
SIGHTS = Path(__file__).with_name("seen.json")


class Sight(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The actions and observations of one test."""

    produced: list[str] = []
    """Descriptions of how the fault was produced."""
    notes: list[str] = []
    figures: dict[str, float] = {}
    """Counts and seconds by name; the page shows their range over all tests of a fault."""


Sights = dict[str, dict[str, dict[str, Sight]]]
"""Results by fault id, back end and test."""


class Place(NamedTuple):
    """The test, the fault and the back end of one result."""

    fault: str
    back_end: str
    test: str
    """pytest's name of the test: `tests/faults/test_kills.py::test_...[...]`."""


def read_sights(file: Path = SIGHTS) -> Sights:
    """Return all stored results."""
    return msgspec.json.decode(file.read_bytes(), type=Sights) if file.exists() else {}


def merge_sights(kept: Sights, fresh: dict[Place, Sight | None], repository: Path = REPOSITORY) -> Sights:
    """Merge the results of a run into the stored ones; None removes a result, because its test failed.

    A partial run keeps the results of the other tests. Results of removed tests are dropped.
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
    """Store the results, sorted so that a change gives a small diff."""
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
"""Maximum number of faults tested only on the simulator."""

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
    "N": "Networks between hosts",
    "V": "Versions and data",
    "X": "Hostile input",
    "L": "A client's pace",
    "U": "A client's processor time and memory",
}

TOP = """\
# Faults

*Written by `make faults` from `tests/faults/catalogue.py` and the recorded results of the tests; do not edit.*

This page lists the faults that the tests produce, by id: how and where a test produces the fault, the promised
behavior, and the observed result. Every test ends with the same check: the job ends without intervention, and its audit
(`mathrag audit JOB`) finds no lost work, no duplicate, and no overlapping residencies of a device.

```sh
make faults              # all faults; writes the results to this page
make faults K=P6         # one id; several: K=P6,P7
```

Figures are the range over all tests of an id in its last run, on the machine of that run.
[Decision 25](../explanation/decisions/25-faults-are-simulated-and-played.md) explains why the same scenarios
run on real processes and on a simulator.
"""


def render(faults: Mapping[str, Fault], seen: Sights) -> str:
    """Render the page docs/reference/faults.md."""
    parts = [TOP]
    for letter, title in FAMILIES.items():
        rows = [_row(fault, seen.get(id_, {})) for id_, fault in faults.items() if id_.startswith(letter)]
        parts.append("\n".join([f"## {title}", "", *_table(HEADER, rows)]) + "\n")
        if pairs := [pair for id_ in faults if id_.startswith(letter) for pair in _list_pairs(id_, seen)]:
            names = tuple(dict.fromkeys(name for _, _, sight in pairs for name in sight.figures))
            rows = [
                _line((id_, hosts, *(f"{sight.figures.get(name, 0):g}" for name in names)))
                for id_, hosts, sight in pairs
            ]
            parts.append("\n".join([PAIRS, "", *_table(("id", "between", *names), rows)]) + "\n")
    return "\n".join(parts)


def _list_pairs(fault: str, seen: Sights) -> Iterator[tuple[str, str, Sight]]:
    """List the results of tests that part two hosts, each with the fault's id and the hosts: `judge-1 - database`."""
    for test, sight in seen.get(fault, {}).get(REAL, {}).items():
        hosts = test.partition("[")[2].rstrip("]")
        if " - " in hosts:
            yield fault, hosts, sight


def _table(header: Iterable[str], rows: Iterable[str]) -> Iterator[str]:
    header = tuple(header)
    yield from (_line(header), "|---" * len(header) + "|", *rows)


PAIRS = """\
One job per row, followed through `orchestrator-2`. `works again s`: seconds until the two hosts worked together again,
counted from the moment when packets passed again (N1, N5) or the connections were forgotten (N2). Between a worker and
Redis it is the first call of the next job, because those of the running job need no message; a generator worker waits
up to 20 s for it. For an orchestrator it includes that it has accepted a job. `longest pause s`: longest time without
an answer to the job. `calls lapsed`: calls that a lost claim gave to another worker. `calls repeated`: these and failed
attempts. `loads`: models loaded in the trial; the first one of a run loads both. `restarts`: services that ended and
were started again."""
HEADER = ("id", "fault", "how it is produced", "where", "promise", "result")


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
    """List missing promises and results, and missing real runs if too many faults were only simulated."""
    lacks = [f"{id_}: no promise" for id_, fault in faults.items() if not fault.promise]
    lacks += [f"{id_}: no result" for id_ in faults if not seen.get(id_)]
    simulated = [id_ for id_ in faults if list(seen.get(id_, ())) == [SIMULATOR]]
    if len(simulated) > MOST_SIMULATED:
        lacks.append(f"more than {MOST_SIMULATED} on the simulator alone: {', '.join(simulated)}")
    return lacks


def write_page() -> None:
    """Write the page from the stored results."""
    PAGE.write_text(render(FAULTS, read_sights()), encoding="utf-8")


if __name__ == "__main__":
    write_page()
    lacking = list_missing(FAULTS, read_sights())
    sys.stdout.write("".join(f"{lack}\n" for lack in lacking))
    sys.exit(1 if lacking else 0)
