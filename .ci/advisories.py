"""Print known vulnerabilities of everything that the lock files install: exit 1 for one, 0 for none.

pip-audit alone would say "none" where the source of advisories knows nothing of any package, or cannot be reached; here
that is said to be a check that was skipped. It cannot see the servers inside the wheels of the extra `embedded`: their
versions are compared with those of `mathrag_gate.stack.versions`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mathrag_gate.stack import versions

REPOSITORY = Path(__file__).resolve().parent.parent
LOCKS = ("base.txt", "dev.txt", "nvml.txt")
PROGRAM = REPOSITORY / ".venv" / "advisories" / "bin" / "pip-audit"
UNREACHABLE = ("ConnectionError", "Failed to resolve", "Max retries", "timed out", "ServiceError")


def main() -> int:
    """Run pip-audit, look at the embedded servers, and print what was found."""
    command = [str(PROGRAM), "--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json"]
    locks = [part for lock in LOCKS for part in ("-r", f"requirements/{lock}")]
    done = subprocess.run([*command, *locks], cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    code, words = judge(done.stdout, done.stderr)
    servers, named = judge_servers(versions.read_versions())
    print(f"{words}\n{named}")  # noqa: T201 - what a person reads
    return code or servers


def judge_servers(found: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and words for the versions of the embedded servers."""
    if not found:
        return 0, "SKIPPED: no embedded server is installed"
    checked = versions.check(found)
    if checked.ok:
        return 0, f"No known vulnerability in the embedded servers: {checked.detail}"
    return 1, f"Known vulnerabilities of the embedded servers: {checked.detail}"


def judge(output: str, errors: str) -> tuple[int, str]:
    """Return exit code and words for what pip-audit wrote."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except ValueError:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        if any(sign in errors for sign in UNREACHABLE):
            return 0, f"SKIPPED: the source of advisories cannot be reached ({last[:200]})"
        return 1, f"pip-audit failed: {last[:500]}"
    asked = [package for package in packages if "vulns" in package]
    found = {
        f"  {package['name']} {package['version']}: {each['id']}, mended in {', '.join(each['fix_versions']) or 'none'}"
        for package in asked
        for each in package["vulns"]
    }
    if found:
        return 1, "\n".join(["Known vulnerabilities:", *sorted(found)])
    if not asked:
        return 0, f"SKIPPED: the source of advisories answers for none of {len(packages)} packages"
    unknown = len(packages) - len(asked)
    return 0, f"No known vulnerability in {len(asked)} packages" + (f"; {unknown} NOT checked" if unknown else "")


if __name__ == "__main__":
    sys.exit(main())
