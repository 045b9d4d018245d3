"""`python -m tests.simulation`: thousands of schedules, or one; `--mutants` plays against runtimes that are broken."""

import argparse
import multiprocessing
import os
import sys
from dataclasses import replace

from tests.simulation.mutants import MUTANTS, Hunt, hunt
from tests.simulation.plan import JobPlan, Plan, plan
from tests.simulation.points import ENOUGH, Coverage, read, record_sights
from tests.simulation.runner import Found, Share, play, runner

HASHES = {"PYTHONHASHSEED": "0"}
"""Sets of strings have the same order in every process."""


def main() -> int:
    """0 if no promise was broken and every fault point was hit often enough; with mutants, if each was found."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _replay(arguments)
    if arguments.mutants is not None:
        return _hunt(arguments.mutants.split(",") if arguments.mutants else list(MUTANTS), arguments.processes)
    return _run(arguments.first, arguments.schedules, arguments.processes, record=arguments.record)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="write the results for docs/reference/faults.md")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--events", help="with --seed: these faults instead of the seed's")
    parser.add_argument("--jobs", help="with --seed: these jobs instead of the seed's")
    parser.add_argument("--mutants", nargs="?", const="", help="find these mutants, or all")
    return parser.parse_args()


def _run(first: int, schedules: int, processes: int, *, record: bool) -> int:
    coverage, found = Coverage(), list[Found]()
    shares = [Share(first, schedules, part, processes) for part in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for played in pool.imap_unordered(play, shares):
            coverage.add(played.hits, played.schedules_of, played.schedules)
            found += played.found
            print(f"{played.schedules} schedules in {played.seconds:.0f} s")
    print("\n".join(coverage.table()))
    for each in found:
        _tell(each)
    missing = coverage.missing(ENOUGH * schedules)
    print(f"{coverage.schedules} schedules, {len(found)} violations, {len(missing)} fault points hit too seldom")
    if record and not found:
        record_sights(coverage.schedules_of)
    return 1 if found or missing else 0


def _tell(found: Found) -> None:
    """Print the seed, the violation, the trace, and the command that repeats it."""
    print(f"\nseed {found.plan.seed}: {found.violations[0]}")
    print("".join(f"  {fault}\n" for fault in found.plan.faults), end="")
    print(f"  replay: {command(found.plan)}")


def command(whole: Plan) -> str:
    """What plays exactly this plan."""
    events = ",".join(fault.token for fault in whole.faults)
    return f"python -m tests.simulation --seed {whole.seed} --jobs '{_said(whole.jobs)}' --events '{events}'"


def _said(jobs: tuple[JobPlan, ...]) -> str:
    return ",".join(f"{job.pipeline}/{job.items}/{job.repeats}/{job.at_s}" for job in jobs)


def _jobs(said: str) -> tuple[JobPlan, ...]:
    parts = [job.split("/") for job in said.split(",")]
    return tuple(JobPlan(name, int(items), int(repeats), float(at_s)) for name, items, repeats, at_s in parts)


def _replay(arguments: argparse.Namespace) -> int:
    whole = plan(arguments.seed)
    if arguments.events is not None:
        whole = replace(whole, faults=tuple(read(token) for token in arguments.events.split(",") if token))
    if arguments.jobs:
        whole = replace(whole, jobs=_jobs(arguments.jobs))
    with runner() as simulation:
        result = simulation.play(whole)
    print(f"seed {whole.seed}, jobs {_said(whole.jobs)}, trace {result.trace[:16]}")
    print("".join(f"  {event}\n" for event in result.events), end="")
    print("\n".join(result.violations) or "no promise was broken")
    return 1 if result.violations else 0


def _hunt(names: list[str], processes: int) -> int:
    lost = 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for hunted in pool.imap_unordered(hunt, names):
            _tell_hunt(hunted)
            lost += hunted.found is None
    return 1 if lost else 0


def _tell_hunt(hunted: Hunt) -> None:
    if hunted.found is None:
        print(f"{hunted.name}: NOT FOUND in {hunted.schedules} schedules")
        return
    print(f"{hunted.name}: found after {hunted.schedules} schedules, seed {hunted.found.plan.seed}")
    print(f"  {hunted.found.violations[0]}")
    print("".join(f"  {fault}\n" for fault in hunted.found.plan.faults), end="", flush=True)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], os.environ | HASHES)  # noqa: S606
    sys.exit(main())
