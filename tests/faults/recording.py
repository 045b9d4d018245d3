"""Record which faults a test produces, how it does so, and its observations; `--record` stores them.

    @pytest.mark.fault("P6")
    def test_...(stack: RunningStack, seen: Seen) -> None:
        seen.describe("SIGSTOP of the judge worker at 50 % of the judge's calls, for three times its claims' life")
        seen.note("the late replies changed nothing")
        seen.figure("calls lapsed", 3)

Set `back_end=SIMULATOR` in the marker if no real processes run. `--fault P6,P7` runs only these ids.
"""

from collections.abc import Generator

import pytest

from tests.faults import report
from tests.faults.catalogue import FAULTS
from tests.faults.report import REAL, Place, Sight

_FRESH = pytest.StashKey[dict[Place, Sight | None]]()
_MINE = pytest.StashKey["Seen"]()


class Seen:
    """The record of one test."""

    def __init__(self) -> None:
        self.sight = Sight()

    def describe(self, how: str) -> None:
        """Record how the fault was produced."""
        self.sight.produced.append(how)

    def note(self, what: str) -> None:
        """Record an observation, with the same text in every run."""
        self.sight.notes.append(what)

    def figure(self, name: str, value: float) -> None:
        """Record a count or a duration, which may differ between runs."""
        self.sight.figures[name] = round(float(value), 1)  # PostgreSQL's numbers are decimals


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Seen:
    mine = request.node.stash[_MINE] = Seen()
    return mine


def places(item: pytest.Item) -> list[Place]:
    """Return where the results of a test belong: one place for each id of its markers."""
    return [
        Place(fault, marker.kwargs.get("back_end", REAL), item.nodeid)
        for marker in item.iter_markers("fault")
        for fault in marker.args
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--fault", default="", metavar="IDS", help="only the tests of these faults: P6,P7")
    group.addoption(
        "--record", action="store_true", help="store the results of fault tests, and write docs/reference/faults.md"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(*ids, back_end): the faults of the catalogue that the test produces")
    config.stash[_FRESH] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject unknown ids and tests without a record; select the requested tests."""
    for item in items:
        unknown = [place.fault for place in places(item) if place.fault not in FAULTS]
        if unknown or (places(item) and "seen" not in getattr(item, "fixturenames", ())):
            raise pytest.UsageError(f"{item.nodeid}: {unknown or 'a fault test uses the fixture `seen`'}")
    if wanted := set(filter(None, config.getoption("--fault").split(","))):
        others = [item for item in items if wanted.isdisjoint(place.fault for place in places(item))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Collect the record of a test; a failed test has none."""
    made = yield
    if not made.skipped and (made.when == "call" or made.failed):
        mine = item.stash.get(_MINE, None)
        sight = mine.sight if mine is not None and not made.failed else None
        item.config.stash[_FRESH].update(dict.fromkeys(places(item), sight))
    return made


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Store the results and write the page."""
    if session.config.getoption("--record") and not session.config.getoption("--collect-only"):
        report.write_sights(report.merge_sights(report.read_sights(), session.config.stash[_FRESH]))
        report.write_page()
