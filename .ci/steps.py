"""Run every step of `.ci/run`, whatever became of the earlier ones, and sum up.

A test that fails runs once more by itself. If it passes then, the run succeeds and names the test under `flaky:`; the
next change has to find out why. A known vulnerability of a dependency is printed and fails nothing here, because it may
be published between two runs of the same commit; `make ci-full` fails for it.

The last line is the sum of all steps: `N passed, N failed, N skipped`. A step that runs no tests counts as one failure
if it fails, and as nothing if it does not.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = str(REPOSITORY / ".venv" / "bin" / "python")
PROCESSOR_S = 900
"""Processor time that all steps should need on a quiet machine. It is printed and not enforced: machines differ."""
PEAK_MIB = 600
"""Memory that a process of tests should need at most; printed as well."""
SLOWEST = 25
"""Tests of a step that are listed with their time."""
TOO_MANY = 20
"""So many failed tests are no accident: they are not repeated."""


@dataclass(frozen=True)
class Step:
    """A command; with `tests`, one that runs pytest."""

    title: str
    command: Sequence[str]
    tests: bool = False
    advisory: bool = False
    """Whether its failure is only printed."""


STEPS = (
    Step("Style, types, imports, generated files", ["make", "lint"]),
    Step("Known vulnerabilities", ["make", "advisories"], advisory=True),
    Step("The documentation as a site", ["make", "docs"]),
    # The README's two commands follow one another: what the demo leaves must not disturb a test.
    Step("The demo, in quick form", ["make", "demo", "QUICK=1", "STOP=1"]),
    Step("Unit and integration tests", ["make", "test"], tests=True),
    # Only their suites: jobs on them, and kills, are `make real`.
    Step(
        "Elasticsearch and llama-server themselves",
        [PYTHON, "-m", "pytest", "tests/real/test_conformance.py", "tests/real/test_llama_server.py"],
        tests=True,
    ),
    Step("A job, the command line and some faults on the whole stack", ["make", "smoke"], tests=True),
    Step("The simulator", [PYTHON, "-m", "pytest", "tests/simulation"], tests=True),
    Step("Schedules with faults in virtual time", [PYTHON, "-m", "tests.simulation", "--schedules", "60"]),
)


@dataclass
class Summary:
    """What all steps found."""

    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """How many tests were skipped, by reason."""
    failed: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    peak_mib: int = 0
    durations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what is printed at the end."""
        lines = ["", "== Steps", *self.durations]
        lines += [f"not tested: {count} ({why})" for why, count in self.skipped.items()]
        lines += [f"{title}: failed (a warning)" for title in self.warnings]
        lines += [f"failed: {each}" for each in self.failed]
        lines += [f"flaky: {each}" for each in self.flaky]
        lines.append(f"processor time: {processor_seconds():.0f} s (limit {PROCESSOR_S} s, on a quiet machine)")
        lines.append(f"peak memory of a test process: {self.peak_mib} MiB (limit {PEAK_MIB} MiB)")
        lines.append(f"{self.passed} passed, {len(self.failed)} failed, {self.skipped.total()} skipped")
        return lines


def main(steps: Sequence[Step] = STEPS) -> int:
    """Run the steps and print their sum; return 1 if anything failed."""
    summary = Summary()
    for step in steps:
        run_step(step, summary)
    print("\n".join(summary.lines()), flush=True)  # noqa: T201 - what a person reads
    return 1 if summary.failed else 0


def run_step(step: Step, summary: Summary) -> None:
    """Run one step and add what it found to the summary."""
    print(f"\n== {step.title}", flush=True)  # noqa: T201
    began, processor_began = time.monotonic(), processor_seconds()
    if step.tests:
        run_tests(step, summary)
    elif run(step.command, os.environ) != 0:
        (summary.warnings if step.advisory else summary.failed).append(step.title)
    took = f"{time.monotonic() - began:6.0f} s, {processor_seconds() - processor_began:6.0f} s of processor time"
    summary.durations.append(f"{took}: {step.title}")


def run_tests(step: Step, summary: Summary) -> None:
    """Run the tests of a step, and each that failed once more by itself."""
    code, outcomes = run_pytest(step.command)
    took = sorted((each for outcome in outcomes for each in outcome["slowest"]), key=lambda each: -each[1])
    lines = [f"{seconds:6.1f} s  {test}" for test, seconds in took[:SLOWEST]]
    print("\n".join([f"\n-- Slowest of: {step.title}", *lines]), flush=True)  # noqa: T201
    for outcome in outcomes:
        summary.passed += outcome["passed"]
        summary.skipped.update(outcome["skipped"].values())
        summary.peak_mib = max(summary.peak_mib, outcome["peak_mib"])
    failed = [test for outcome in outcomes for test in outcome["failed"]]
    if code != 0 and not failed:
        summary.failed.append(f"{step.title}: exit code {code}")
    repeat = len(failed) < TOO_MANY
    for test in failed:
        if repeat and is_passed_alone(test):
            summary.flaky.append(test)
            summary.passed += 1
        else:
            summary.failed.append(test)


def is_passed_alone(test: str) -> bool:
    """Run one test in a process of its own."""
    print(f"\n== Once more by itself: {test}", flush=True)  # noqa: T201
    code, _ = run_pytest([PYTHON, "-m", "pytest", test])
    return code == 0


def run_pytest(command: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run a command that runs pytest; return its exit code and what `tests/outcomes.py` wrote."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        # A change is judged by the same examples of property tests each time; `make ci-full` searches for new ones.
        options = f"--hypothesis-profile=ci --outcomes={file.name}"
        # Servers in containers are slower; `make ci-full` tests on them.
        code = run(command, {"MATHRAG_TEST_SERVERS": "embedded", **os.environ, "PYTEST_ADDOPTS": options})
        return code, [json.loads(line) for line in Path(file.name).read_text().splitlines()]


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    return subprocess.run(command, cwd=REPOSITORY, env=dict(environment), check=False).returncode  # noqa: S603


def processor_seconds() -> float:
    """Return the processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
