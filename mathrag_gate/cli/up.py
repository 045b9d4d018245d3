"""`mathrag up` and `mathrag open`: start the embedded stack on this machine."""

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from mathrag.cli.output import AsJson, DataDir, print_json, report_errors
from mathrag.client import address
from mathrag.client.errors import Failed, failure
from mathrag.errors import Conflict, Unavailable
from mathrag_gate.cli import stack
from mathrag_gate.cli.config_findings import find_missing_file
from mathrag_gate.cli.stack import POLL_S, parse_scale, require_directory, resolve_directory
from mathrag_gate.stack import control, privacy, redis
from mathrag_gate.stack.process import Child
from mathrag_gate.stack.supervisor import LOGS, Stack, Supervisor, build_stack
from shared.settings import Settings, load
from shared.telemetry import logs

_log = logging.getLogger(__name__)

TIMEOUT_S = 600
SCALABLE = {"judge": "judges", "generator": "generators"}
"""Names of the settings under `workers`, by service."""
ERROR = "error: "
FIX = "  fix: "

Port = Annotated[
    int | None,
    typer.Option(
        min=0, max=65535, help="Port of the API; 0 picks a free one (default: `port` in the settings, or 8080)."
    ),
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Run in the background; return when everything is ready.")]
Scale = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SERVICE=N", help="Number of workers of a service, such as judge=3 or generator=2; repeat for both."
    ),
]
Timeout = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Maximum time that --detach waits for the services; after it, the stack keeps starting in the background.",
    ),
]
InBackground = Annotated[bool, typer.Option("--in-background", hidden=True)]
"""Hidden option of the process that --detach starts: it writes its progress to a log instead of printing it."""


def up(
    detach: Detach = False,
    data_dir: DataDir = None,
    port: Port = None,
    scale: Scale = None,
    timeout: Timeout = TIMEOUT_S,
    in_background: InBackground = False,
    as_json: AsJson = False,
) -> None:
    """Start PostgreSQL, Redis and all services, and keep them running."""
    with report_errors(as_json=as_json):
        if in_background:
            logs.configure(load().telemetry, "supervisor")
            try:
                _run(_build(data_dir, port, scale or []), ready=_print_nothing, running=lambda: None)
            except Exception as error:
                _log.critical("the stack ends: %s", failure(error).message)
                raise
            return
        built = _build(data_dir, port, scale or [])
        _say(f"Starting PostgreSQL, Redis and the services on {built.data_dir} ...", as_json)
        if detach:
            starting = _Starting(silent=as_json)
            log = built.data_dir / LOGS / "supervisor.log"
            log.touch(0o600)
            command = [sys.executable, "-P", "-m", "mathrag.cli.main", "up", "--in-background"]
            command += ["--data-dir", str(built.data_dir), "--port", str(built.port)]
            command += [word for text in scale or [] for word in ("--scale", text)]
            with log.open("ab") as output:
                child = subprocess.Popen(  # noqa: S603 - our own command
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                    umask=privacy.UMASK,
                )  # fmt: skip
            _wait_running(child, built, log, timeout, starting)
            _print_running(built, as_json, stop=f"mathrag down --data-dir {built.data_dir}")
        else:
            logs.configure(built.settings.telemetry.model_copy(update={"log_level": "warning"}), "supervisor")
            _run(
                built,
                ready=_print_nothing if as_json else _print_ready,
                running=lambda: _print_running(built, as_json, stop="Ctrl-C"),
            )
            _say(f"Stopped. The data are kept in {built.data_dir}.", as_json)


def _say(words: str, as_json: bool) -> None:
    if not as_json:
        typer.echo(words)


def _build(data_dir: Path | None, port: int | None, scale: list[str]) -> Stack:
    for absent in find_missing_file():
        raise Failed("invalid", str(absent), hint=absent.fix)
    settings = apply_scale(load(), scale)
    directory = resolve_directory(data_dir)
    if control.find_holder(directory) is not None:
        last = address.read_state(directory)
        raise Conflict(
            f"a stack is already running in `{directory}`{f' at {last.url}' if last else ''}",
            hint=f"stop it with `mathrag down --data-dir {directory}`",
        )
    wanted = settings.port if port is None else port
    if wanted:
        reason = redis.probe_port(wanted, settings.host)
        if reason is not None:
            if reason == errno.EADDRINUSE:
                other = wanted + 1 if wanted < redis.HIGHEST else wanted - 1
                raise Conflict(f"port {wanted} is in use", hint=f"choose another port: mathrag up --port {other}")
            if reason == errno.EACCES:
                hint = "choose a port above 1023: mathrag up --port 8080"
                raise Failed("invalid", f"only root can use port {wanted}", hint=hint)
            message = f"`host`: {settings.host!r} is not an address of this machine"
            raise Failed("invalid", message, hint="use 127.0.0.1, or 0.0.0.0 for all addresses")
    built = build_stack(settings, data_dir=directory, port=wanted)
    built.check_servers()
    return built


def apply_scale(settings: Settings, scale: list[str]) -> Settings:
    """Return `settings` with the worker counts of `--scale`.

    Raises:
        Failed: an entry is not SERVICE=N with a scalable service and a count.
    """
    counts = {SCALABLE[service]: count for service, count in parse_scale(scale, least=0).items()}
    return settings.model_copy(update={"workers": settings.workers.model_copy(update=counts)})


def _run(built: Stack, *, ready: Callable[[str, float], None], running: Callable[[], None]) -> None:
    os.umask(privacy.UMASK)
    supervisor = Supervisor(
        built.table(), workers=built.workers(), data_dir=built.data_dir, url=built.url, ready=ready, running=running
    )

    async def run_until_signal() -> None:
        running = asyncio.create_task(supervisor.run())

        def cancel_once() -> None:
            # A second signal must not interrupt the ordered stop.
            if not running.cancelling():
                running.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, cancel_once)
        await running

    with suppress(asyncio.CancelledError):
        asyncio.run(run_until_signal())


class _Starting:
    """Watches a starting stack, and prints each service with its seconds when it is ready."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._began = time.monotonic()
        self._ready: set[str] = set()
        self._phases: dict[str, tuple[str, float]] = {}
        """Phase of each started service, and the time at which it was first seen in this phase."""

    def show(self, now: address.State | None) -> None:
        """Print the services that have become ready since the last call; None means that no state was written yet."""
        for child in now.children if now is not None else ():
            if self._phases.get(child.name, ("", 0.0))[0] != child.phase:
                self._phases[child.name] = (child.phase, time.monotonic())
            if child.phase == "ready" and child.name not in self._ready:
                self._ready.add(child.name)
                if not self._silent:
                    _print_ready(child.name, time.monotonic() - self._began)

    def describe(self, services: Sequence[str]) -> str:
        """Return which of these services are ready, not ready (and for how long), or not started."""
        now = time.monotonic()
        begun = {name: (phase, f"{name} for {now - since:.0f} s") for name, (phase, since) in self._phases.items()}
        groups = {
            "ready": [name for name, (phase, _) in begun.items() if phase == "ready"],
            "starting": [words for phase, words in begun.values() if phase != "ready"],
            "not started": [name for name in services if name not in begun],
        }
        return "; ".join(f"{group}: {', '.join(found)}" for group, found in groups.items() if found)


def _wait_running(
    child: "subprocess.Popen[bytes]", built: Stack, log: Path, timeout_s: int, starting: _Starting
) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        now = address.read_state(built.data_dir)
        now = now if now is not None and now.pid == child.pid else None  # otherwise an earlier stack wrote it
        starting.show(now)
        if now is not None and now.phase == "running":
            return
        if child.poll() is not None:
            # The detached supervisor ended with an error and its fix, like `up` in the foreground; its log has both.
            lines = log.read_text(errors="replace").splitlines()
            last = max((number for number, line in enumerate(lines) if line.startswith(ERROR)), default=None)
            if last is None:
                error = Unavailable("the supervisor ended without an error message", hint=f"less {log}")
            else:
                hint = "".join(lines[last + 1 : last + 2]).removeprefix(FIX)
                error = Unavailable(lines[last].removeprefix(ERROR), hint=hint)
            raise error
        if warning := control.check_space(built.data_dir):
            raise Unavailable(warning, hint="free disk space; the stack waits and continues by itself")
        if time.monotonic() > deadline:
            services = [row.name for row in built.table() if isinstance(row, Child)]
            raise Unavailable(
                f"the stack is not ready after {timeout_s} s; it continues to start ({starting.describe(services)})",
                hint=f"check again with `mathrag status --data-dir {built.data_dir}`; its log is {log}",
            )
        time.sleep(POLL_S)


def _print_ready(name: str, seconds: float) -> None:
    typer.echo(f"  {name:<12} ready  {seconds:5.1f} s")


def _print_nothing(_name: str, _seconds: float) -> None:
    """Print nothing: --json only prints the final document."""


def _print_running(built: Stack, as_json: bool, *, stop: str) -> None:
    if as_json:
        print_json({"url": built.url, "data_dir": str(built.data_dir)})
        return
    typer.echo(f"""
MathRAG-Gate runs at {built.url}
  data   {built.data_dir}
  logs   {built.data_dir / LOGS}
  check  mathrag status --data-dir {built.data_dir}
  stop   {stop}""")


CONFIGURATION = "mathrag.yaml"
DATA = "stack"


@contextmanager
def own_stack(folder: Path, configuration: dict[str, Any], *, keep: bool) -> Iterator[None]:
    """Run the stack of `folder`, and set environment variables with which commands find it.

    If a stack with the same configuration already runs there, use it and leave it running.
    """
    data = folder / DATA
    with set_environment(MATHRAG_CONFIG=str(folder / CONFIGURATION), MATHRAG_DATA_DIR=str(data)):
        file = folder / CONFIGURATION
        text = yaml.safe_dump(configuration, sort_keys=False)
        if file.is_file() and file.read_text("utf-8") == text:
            changed = False
        else:
            privacy.create_closed(file.parent)
            file.write_text(text, "utf-8")
            changed = True
        if changed and control.find_holder(data) is not None:
            stack.down(data_dir=data)
        if control.find_holder(data) is not None:
            yield
            return
        try:
            up(detach=True, data_dir=data, port=0)
            yield
        finally:
            if not keep:
                stack.down(data_dir=data)


@contextmanager
def set_environment(**variables: str) -> Iterator[None]:
    """Set environment variables for this process and its children, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def open(data_dir: DataDir = None, as_json: AsJson = False) -> None:  # noqa: A001 - the command's name
    """Open the web pages in a browser, and print their address; the stack is started if it is not running."""
    with report_errors(as_json=as_json):
        directory = require_directory(data_dir)
        # A demo or reproduction has its stack in a subfolder, with its own settings.
        if (directory / CONFIGURATION).is_file() and (directory / DATA).is_dir():
            os.environ["MATHRAG_CONFIG"] = str(directory / CONFIGURATION)
            directory /= DATA
        if control.find_holder(directory) is None:
            settings = load()
            port = settings.port if redis.is_free(settings.port, settings.host) else 0
            up(detach=True, data_dir=directory, port=port, as_json=as_json)
        running = address.read_state(directory)
        if running is None or running.phase != "running":
            hint = f"check it with mathrag status --data-dir {directory}"
            raise Failed("unavailable", f"the stack in {directory} is not ready", hint=hint)
        has_display = any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))) or sys.platform in ("darwin", "win32")
        opened = has_display and webbrowser.open(running.url)
        if as_json:
            print_json({"url": running.url, "opened": opened})
        else:
            typer.echo(f"{'Opened' if opened else 'Open'} {running.url}")
