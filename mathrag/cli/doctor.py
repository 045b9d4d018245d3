"""`mathrag doctor`: everything that a job needs, one line each, and the command that mends what is not well.

The running service looks, with its own settings. Where it does not answer on this machine, the doctor looks for itself,
with the configuration of this folder and the addresses of the stack; from elsewhere it asks `/readyz`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.cli import config, config_findings, services
from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import DataDir
from mathrag.client import address, catalog, service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.stack.addresses import running, variables_of
from shared.checks.check import DEEP_S, EDITED, Check
from shared.settings import Settings, load

PATIENCE_S = 3.0
PROGRAM = "services.orchestrator.probes"
"""What looks with the settings of its environment and of this folder."""


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check everything that a job needs; exits with 1 when something is wrong, and says how to mend it."""
    with reported(as_json=as_json):
        found = examine(data_dir)
        well = all(check.ok for check in found)
        if as_json:
            print_json({"well": well, "checks": found})
        else:
            print_checks(found)
        if not well:
            raise typer.Exit(Exit.FINDING)


def examine(data_dir: Path | None = None) -> list[Check]:
    """All checks that are possible from here."""
    said = [_configured(finding) for finding in config.check()]
    try:
        settings = running(load(), data_dir)
    except config_findings.REFUSALS:
        return said
    url = address.url(data_dir)
    answers = _answers(url)
    if answers.ok and (told := _told(url)) is not None:
        return [*(said or [_valid(ASKED)]), answers, *_sources(url), *told]
    if not address.is_local(url):
        with Client(url) as remote:
            return [*(said or [_valid(LESS)]), *_checks(remote.send(service.readiness()))]
    here = [answers, *_sources(url), *_stack(settings), *probed(variables_of(settings))]
    return [*(said or [_valid(UNASKED)]), *here]


def _valid(what: str) -> Check:
    return Check(name="configuration", ok=True, detail=f"valid here; {what}")


def _told(url: str) -> list[Check] | None:
    """What the service says of itself; None where it does not answer, or not to us."""
    try:
        with Client(url, patience_s=DEEP_S) as asked:
            return _checks(asked.send(service.checks()))
    except Failed:
        return None


def _checks(said: Any) -> list[Check]:
    return msgspec.convert(said["checks"], list[Check])


def _configured(finding: config_findings.Finding) -> Check:
    return Check(name="configuration", ok=False, detail=str(finding), fix=finding.fix)


def _answers(url: str) -> Check:
    try:
        with Client(url, patience_s=PATIENCE_S) as local:
            local.send(service.alive())
    except Failed as failed:
        return Check(name="api", ok=False, detail=failed.message, fix=failed.hint or "see the orchestrator's log")
    return Check(name="api", ok=True, detail=url)


def _sources(url: str) -> Iterator[Check]:
    """Whether the service runs the source files that are on disk; nothing where it does not say."""
    try:
        with Client(url, patience_s=PATIENCE_S) as local:
            found = local.send(catalog.pipelines())
    except Failed:
        return
    edited = sorted({change["file"] for pipeline in found for change in pipeline["changed"]})
    detail = f"edited since the service imported it: {', '.join(edited)}" if edited else "as on disk"
    yield Check(name="sources", ok=not edited, detail=detail, fix=EDITED if edited else "")


def _stack(settings: Settings) -> Iterator[Check]:
    if not _is_reachable(settings):
        where = settings.data_dir.absolute()
        yield Check(name="stack", ok=False, detail=f"nothing runs on {where}", fix="mathrag up --detach")


def _is_reachable(settings: Settings) -> bool:
    return bool(settings.database_url and settings.redis_url)


def probed(environment: Mapping[str, str]) -> list[Check]:
    """What the service's own program finds in this environment; where nothing runs, that which needs nobody else."""
    return msgspec.json.decode(services.run(PROGRAM, environment=environment).stdout, type=list[Check])


ASKED = "the service was asked, which runs with settings of its own"
LESS = "of the service only `/readyz` was asked: for more, set MATHRAG_API_KEY to a key with the scope `operate`"
UNASKED = "what follows was looked at with it, as no service answered"


def print_checks(found: list[Check]) -> None:
    """One line each."""
    width = max(len(check.name) for check in found)
    for check in found:
        fix = f"; fix: {check.fix}" if check.fix and not check.ok else ""
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<{width}}  {check.detail}{fix}".rstrip())
    wrong = sum(not check.ok for check in found)
    typer.echo(f"{wrong} of {len(found)} need attention" if wrong else "all is well")
