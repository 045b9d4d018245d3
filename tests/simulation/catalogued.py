"""What the simulator says of the catalogue's faults, in `docs/reference/faults.md`."""

from collections import Counter
from collections.abc import Iterable
from random import Random

from tests.faults import report
from tests.faults.report import SIMULATOR, Place, Sight
from tests.simulation.points import POINTS, choose

ITSELF = "tests/simulation/__main__.py"
"""Whose sights these are."""
SEEN = "in virtual time: every job ended, and nothing was lost, doubled or overlapping"


def catalogued(points: Iterable[str]) -> set[str]:
    """The ids that fault points stand for."""
    return {id_ for name in points for id_ in POINTS[name].stands_for}


def write(schedules: Counter[str]) -> None:
    """Keep what a run without a violation saw; `schedules` says by id in how many it struck."""
    fresh = {Place(id_, SIMULATOR, ITSELF): _sight(id_, schedules[id_]) for id_ in sorted(catalogued(POINTS))}
    report.write_sights(report.merge_sights(report.read_sights(), fresh))
    report.write_page()


def _sight(id_: str, schedules: int) -> Sight | None:
    """None where it has struck in none."""
    if not schedules:
        return None
    points = [point for point in POINTS.values() if id_ in point.stands_for]
    produced = [f"simulated: {choose(point, Random(0))}" for point in points]
    return Sight(produced=produced, notes=[SEEN], figures={"schedules of the simulator": schedules})
