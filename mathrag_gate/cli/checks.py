"""Checks of `mathrag doctor` that need the server package: the configuration, and the requirements on this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mathrag.check import Check
from mathrag.client.errors import Failed
from mathrag.errors import Unavailable
from mathrag.installation import install_command
from mathrag_gate.cli import config, config_findings
from mathrag_gate.stack import versions
from mathrag_gate.stack.backup import add_running_addresses, list_variables
from shared.settings import load

PROGRAM = "services.orchestrator.probes"
"""Module that runs the checks with the settings of its environment and of this folder."""


def check_configuration() -> tuple[list[Check], bool]:
    """Return a failed check for each problem of the configuration, and True if the settings can be loaded."""
    findings = [
        Check(name="configuration", ok=False, detail=str(finding), fix=finding.fix) for finding in config.check()
    ]
    try:
        load()
    except config_findings.REFUSALS:
        return findings, False
    return findings, True


def check_servers() -> Iterator[Check]:
    """Yield a check of the embedded servers: they run, without known vulnerability. Yield nothing if none is used."""
    settings = load()
    replaced = {versions.POSTGRESQL: settings.database_url, versions.VALKEY: settings.redis_url}
    try:
        used = versions.read_versions(server for server, url in replaced.items() if not url)
    except Unavailable as error:
        fix = error.hint or install_command("mathrag-gate[embedded]")
        yield Check(name="embedded servers", ok=False, detail=error.message, fix=fix)
        return
    if used:
        yield versions.check(used)


def check_this_machine(data_dir: Path | None) -> list[Check]:
    """Run the service's checks with this folder's configuration and the addresses of the stack that runs on it."""
    found = add_running_addresses(load(), data_dir)
    checks = [*check_servers(), *run_checks(list_variables(found))]
    if found.database_url and found.redis_url:
        return checks
    problem = f"no stack is running in {found.data_dir.absolute()}"
    return [Check(name="stack", ok=False, detail=problem, fix="mathrag up --detach"), *checks]


def run_checks(environment: Mapping[str, str]) -> list[Check]:
    """Run the service's checks in this environment; without a stack, run only those that need no other process."""
    return msgspec.json.decode(run(PROGRAM, environment=environment).stdout, type=list[Check])


def run(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m module`, and show its standard error while it runs.

    Args:
        module: the service's module.
        question: the program's standard input.
        environment: variables in addition to those of this process.

    Raises:
        Failed: the program ended without a result.
    """
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-P", "-m", module], input=question, stdout=subprocess.PIPE, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if not ended.stdout:
        message = f"{module} ended with exit code {ended.returncode} and no result"
        raise Failed("internal", message, hint="read its messages above")
    return ended
