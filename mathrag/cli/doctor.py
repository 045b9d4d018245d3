"""`mathrag doctor`: check everything that a job needs, one line for each check, with a fix for each failed one.

The running service checks itself, with its own settings. If it does not answer on this machine, the doctor runs the
checks with this folder's configuration and the addresses of the stack; from another machine it asks `/readyz`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.cli import config, config_findings
from mathrag.cli.output import AsJson, DataDir, Exit, print_json, report_errors
from mathrag.cli.stack import require_directory
from mathrag.client import address, service
from mathrag.client.client import Client
from mathrag.client.errors import Failed, Unreachable
from shared.check import DEEP_S, EDITED, Check
from shared.installation import find_missing_package
from shared.settings import Settings, load

PATIENCE_S = 3.0
PROGRAM = "services.orchestrator.probes"
"""Program that runs the checks with the settings of its environment and of this folder."""
CHECKED_BY_SERVICE = "the running service made the checks below, with its own settings"
CHECKED_BY_READYZ = (
    "only `/readyz` of the service was checked; for all checks, set MATHRAG_API_KEY to a key with the scope `operate`"
)
CHECKED_HERE = "no service answered, so the checks below use this configuration"


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check everything that a job needs, and print a fix for each problem; exits with 1 if there is one."""
    with report_errors(as_json=as_json):
        if data_dir is not None:  # else wrong settings are findings
            require_directory(data_dir)
        found = examine(data_dir)
        well = all(check.ok for check in found)
        print_json({"well": well, "checks": found}) if as_json else print_checks(found)
        if not well:
            raise typer.Exit(Exit.FINDING)


def examine(data_dir: Path | None = None) -> list[Check]:
    """Run all checks that are possible from this machine, and return their results."""
    findings = [
        Check(name="configuration", ok=False, detail=str(finding), fix=finding.fix) for finding in config.check()
    ]
    try:
        settings = load()
    except config_findings.REFUSALS:
        return findings

    def report_configuration(what: str) -> list[Check]:
        return findings or [Check(name="configuration", ok=True, detail=f"valid here; {what}")]

    try:
        url = address.url(data_dir)
    except Unreachable as nowhere:
        api = _failed_api(nowhere)
        return [*report_configuration(CHECKED_HERE), api, *_check_this_machine(settings, data_dir)]
    api = _check_api(url)
    if api.ok:
        # The service's own checks, unless it does not answer or refuses our key.
        with suppress(Failed), Client(url, timeout_s=DEEP_S) as asked:
            own = _decode_checks(asked.send(service.checks()))
            return [*report_configuration(CHECKED_BY_SERVICE), api, *_check_sources(url), *own]
    if not address.is_local(url):
        with Client(url) as remote:
            ready = _decode_checks(remote.send(service.readiness()))
            return [*report_configuration(CHECKED_BY_READYZ), *ready]
    return [*report_configuration(CHECKED_HERE), api, *_check_sources(url), *_check_this_machine(settings, data_dir)]


def _check_this_machine(settings: Settings, data_dir: Path | None) -> list[Check]:
    """Check the stack of this machine; a single failed check if packages for that are not installed."""
    if missing := find_missing_package():
        return [Check(name="packages", ok=False, detail=missing.message, fix=missing.hint or "")]
    from mathrag.stack.backup import add_running_addresses, list_variables

    found = add_running_addresses(settings, data_dir)
    checks = run_checks(list_variables(found))
    if found.database_url and found.redis_url:
        return checks
    problem = f"no stack runs on {found.data_dir.absolute()}"
    return [Check(name="stack", ok=False, detail=problem, fix="mathrag up --detach"), *checks]


def _decode_checks(body: Any) -> list[Check]:
    return msgspec.convert(body["checks"], list[Check])


def _check_api(url: str) -> Check:
    try:
        with Client(url, timeout_s=PATIENCE_S) as local:
            local.send(service.alive())
    except Failed as failed:
        return _failed_api(failed)
    return Check(name="api", ok=True, detail=url)


def _failed_api(failed: Failed) -> Check:
    return Check(name="api", ok=False, detail=failed.message, fix=failed.hint or "see the orchestrator's log")


def _check_sources(url: str) -> Iterator[Check]:
    """Yield whether the service runs the source files on disk; nothing if it does not answer."""
    try:
        with Client(url, timeout_s=PATIENCE_S) as local:
            found = local.send(service.pipelines())
    except Failed:
        return
    edited = sorted({change["file"] for pipeline in found for change in pipeline["changed"]})
    detail = f"edited since the service imported it: {', '.join(edited)}" if edited else "as on disk"
    yield Check(name="sources", ok=not edited, detail=detail, fix=EDITED if edited else "")


def run_checks(environment: Mapping[str, str]) -> list[Check]:
    """Run the service's checks in this environment; without a stack, only those that need no other process."""
    return msgspec.json.decode(run(PROGRAM, environment=environment).stdout, type=list[Check])


def run(
    module: str, question: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m module`, showing its standard error as it is written.

    Args:
        module: the service's module.
        question: the program's standard input.
        environment: variables in addition to those of this process.

    Raises:
        NotInstalled: the packages of services are missing.
        Failed: the program ended without a result.
    """
    if missing := find_missing_package():
        raise missing
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", module], input=question, stdout=subprocess.PIPE, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if not ended.stdout:
        message = f"{module} ended with exit code {ended.returncode} and no result"
        raise Failed("internal", message, hint="see its messages above")
    return ended


def print_checks(found: list[Check]) -> None:
    """Print one line for each check, then how many failed."""
    width = max(len(check.name) for check in found)
    for check in found:
        fix = f"; fix: {check.fix}" if check.fix and not check.ok else ""
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<{width}}  {check.detail}{fix}".rstrip())
    wrong = sum(not check.ok for check in found)
    typer.echo(f"{wrong} of {len(found)} need attention" if wrong else "all is well")
