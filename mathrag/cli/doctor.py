"""`mathrag doctor`: check everything that a job needs, and print a fix for each failed check.

The running service checks itself with its own settings. If it does not answer on this machine, the doctor runs the
checks with this folder's configuration and the addresses of the stack. From another machine, it asks `/readyz`.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.check import DEEP_S, EDITED, Check
from mathrag.cli.output import AsJson, DataDir, Exit, print_json, report_errors
from mathrag.client import address, service
from mathrag.client.client import Client
from mathrag.client.errors import Failed, Unreachable
from mathrag.installation import has_server, import_server

PATIENCE_S = 3.0
CHECKED_BY_SERVICE = "the running service made the checks below, with its own settings"
CHECKED_BY_READYZ = (
    "only `/readyz` of the service was checked; for all checks, set MATHRAG_API_KEY to a key with the scope `operate`"
)
CHECKED_HERE = "no service answered, so the checks below use this configuration"


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check everything that a job needs, and suggest a fix for each problem; exits with 1 if there is one."""
    with report_errors(as_json=as_json):
        found = examine(data_dir)
        well = all(check.ok for check in found)
        print_json({"well": well, "checks": found}) if as_json else print_checks(found)
        if not well:
            raise typer.Exit(Exit.FINDING)


def examine(data_dir: Path | None = None) -> list[Check]:
    """Run all checks that are possible from this machine, and return their results.

    Without the server, the configuration and this machine are not checked.
    """
    checks = _import_checks(data_dir)
    findings, usable = checks.check_configuration() if checks else ([], True)
    if not usable:
        return list(findings)

    def report_configuration(what: str) -> list[Check]:
        valid = Check(name="configuration", ok=True, detail=f"valid here; {what}")
        return findings or ([valid] if checks else [])

    def check_this_machine() -> list[Check]:
        return [*checks.check_this_machine(data_dir)] if checks else []

    try:
        url = address.url(data_dir)
    except Unreachable as nowhere:
        return [*report_configuration(CHECKED_HERE), _failed_api(nowhere), *check_this_machine()]
    api = _check_api(url)
    if api.ok:
        # Ask the service for its checks, unless it does not answer or refuses the key.
        with suppress(Failed), Client(url, timeout_s=DEEP_S) as asked:
            own = _decode_checks(asked.send(service.checks()))
            here = checks.check_servers() if checks and address.is_local(url) else ()
            return [*report_configuration(CHECKED_BY_SERVICE), api, *_check_sources(url), *here, *own]
    if not address.is_local(url) or (api.ok and not checks):
        with Client(url) as remote:
            ready = _decode_checks(remote.send(service.readiness()))
            return [*report_configuration(CHECKED_BY_READYZ), *ready]
    return [*report_configuration(CHECKED_HERE), api, *_check_sources(url), *check_this_machine()]


def _import_checks(data_dir: Path | None) -> Any:
    """Import the server's checks of the configuration and of this machine; None without the server."""
    if not has_server():
        return None
    if data_dir is not None:  # without it, wrong settings are reported as findings
        import_server("mathrag_gate.cli.stack").require_directory(data_dir)
    return import_server("mathrag_gate.cli.checks")


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
    """Yield a check that the service runs the source files on disk; yield nothing if it does not answer."""
    try:
        with Client(url, timeout_s=PATIENCE_S) as local:
            found = local.send(service.pipelines())
    except Failed:
        return
    edited = sorted({change["file"] for pipeline in found for change in pipeline["changed"]})
    detail = f"edited since the service imported it: {', '.join(edited)}" if edited else "as on disk"
    yield Check(name="sources", ok=not edited, detail=detail, fix=EDITED if edited else "")


def print_checks(found: list[Check]) -> None:
    """Print one line for each check, and the number of failed checks."""
    width = max(len(check.name) for check in found)
    for check in found:
        fix = f"; fix: {check.fix}" if check.fix and not check.ok else ""
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<{width}}  {check.detail}{fix}".rstrip())
    wrong = sum(not check.ok for check in found)
    typer.echo(f"{wrong} of {len(found)} checks failed" if wrong else f"all {len(found)} checks passed")
