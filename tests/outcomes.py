"""Write the outcome of a test run to a file, and print what the run cost.

`pytest --outcomes FILE` appends one line of JSON: how many tests passed, which were skipped and why, which failed, and
the peak memory of a process that ran tests, and how long the slowest tests took. `.ci/steps.py` reads it.
"""

import json
import resource
import sys
from collections import Counter
from pathlib import Path

import pytest

SLOWEST = 25
PEAK = "peak_mib"
"""Under this name a worker of pytest-xdist tells the controller its peak memory."""


class Outcomes:
    """Collects the reports of one run, in the process that prints them."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.passed: list[str] = []
        self.skipped: dict[str, str] = {}
        """The reason by test."""
        self.failed: dict[str, None] = {}
        self.peaks: dict[str, int] = {}
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.pytest_collectreport(report)
        self.seconds[report.nodeid] += report.duration  # type: ignore[assignment]  # typeshed counts in whole numbers
        if report.passed and report.when == "call":
            self.passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None
        elif report.skipped:
            # Of a test that failed as expected, `longrepr` is its traceback.
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "failed as expected"
            self.skipped[report.nodeid] = why.removeprefix("Skipped: ")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        peak = getattr(node, "workeroutput", {}).get(PEAK)
        if peak is not None:
            self.peaks[node.gateway.id] = peak  # type: ignore[attr-defined]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        peaks = self.peaks or {"pytest": peak_mib()}
        said = ", ".join(f"{name} {peak} MiB" for name, peak in sorted(peaks.items()))
        terminalreporter.write_line(f"peak memory: {said}")
        if self.file:
            found = {
                "passed": sum(test not in self.failed for test in self.passed),
                "skipped": self.skipped,
                "failed": list(self.failed),
                "peak_mib": max(peaks.values()),
                "slowest": self.seconds.most_common(SLOWEST),
            }
            with self.file.open("a") as file:
                file.write(json.dumps(found) + "\n")


def peak_mib() -> int:
    """Return the largest resident size that this process has had, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="append the outcome of this run to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[PEAK] = peak_mib()
