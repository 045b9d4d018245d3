"""`mathrag status`, `down`, `scale` and `service`: control the stack on this machine, also under systemd."""

import getpass
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.output import AsJson, DataDir, Exit, print_json, report_errors
from mathrag.client import address
from mathrag.client.address import configured_data_dir
from mathrag.client.errors import Failed
from mathrag.errors import Conflict, NotFound, Unavailable
from mathrag_gate.stack import control

STOP_S = 120.0
POLL_S = 0.1
SCALE_S = 600
FAILED_STARTS = 3
"""Failed starts of a new worker after which `mathrag scale` stops waiting; the supervisor keeps trying."""


def down(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Stop the stack that `mathrag up` started; its data are kept."""
    with report_errors(as_json=as_json):
        directory = require_directory(data_dir)
        pid = control.find_holder(directory)
        if pid is not None:
            if not as_json:
                typer.echo(f"Stopping {directory} ...")
            # If the supervisor is killed, its children also end (parent-death signal); committed data are safe.
            for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, 5.0)):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                deadline = time.monotonic() + patience_s
                while control.find_holder(directory) == pid and time.monotonic() < deadline:
                    time.sleep(POLL_S)
        if as_json:
            print_json({"stopped": pid is not None, "data_dir": str(directory)})
        elif pid is None:
            typer.echo(f"Nothing runs on {directory}.")
        else:
            typer.echo(f"Stopped. The data are kept in {directory}; `mathrag up` continues there.")


Numbers = Annotated[
    list[str], typer.Argument(metavar="SERVICE=N", help="Numbers of workers, such as judge=3 generator=2.")
]
Patience = Annotated[
    int,
    typer.Option(
        "--timeout",
        min=0,
        metavar="SECONDS",
        help="Maximum time to wait until the workers have started or stopped; after it, the stack keeps scaling.",
    ),
]


def scale(numbers: Numbers, data_dir: DataDir = None, timeout: Patience = SCALE_S, as_json: AsJson = False) -> None:
    """Change the number of workers while the stack runs.

    Other services keep running. A worker that is stopped returns its claimed calls, which do not count as attempts. The
    numbers apply until the stack stops; the next `mathrag up` uses its own `--scale` or the settings. In containers,
    use `docker compose up --scale`.
    """
    with report_errors(as_json=as_json):
        counts = parse_scale(numbers, least=1)
        directory = require_directory(data_dir)
        before = _read_running(directory, counts)
        if not as_json:
            typer.echo(f"Scaling {directory} to {_format_scale(counts)} ...")
        for service, count in counts.items():
            control.ask_for_workers(directory, service, count)
        now = _wait_scaled(directory, counts, before, timeout)
        if as_json:
            workers = {service: len(_list_workers(now, service)) for service in control.SERVICES}
            print_json({"workers": workers, "data_dir": str(directory)})
        else:
            _print_children(child for service in control.SERVICES for child in _list_workers(now, service))


def parse_scale(entries: Sequence[str], *, least: int) -> dict[str, int]:
    """Return the numbers of workers by service.

    Raises:
        Failed: an entry is not SERVICE=N with a scalable service and a valid number.
    """
    counts = {}
    for entry in entries:
        service, _, count = entry.partition("=")
        if service not in control.SERVICES:
            hint = "write for example judge=3 or generator=2; other services cannot be scaled"
            raise Failed("usage", f"`{entry}` does not name a service that can be scaled", hint=hint)
        if not (count.isdecimal() and len(count) <= len(str(control.MOST)) and least <= int(count) <= control.MOST):
            hint = f"write for example {service}=3"
            raise Failed("usage", f"`{entry}`: the number of workers must be from {least} to {control.MOST}", hint=hint)
        counts[service] = int(count)
    return counts


def _wait_scaled(directory: Path, counts: dict[str, int], before: address.State, timeout_s: int) -> address.State:
    """Wait until the requested numbers of workers run, and return the state."""
    deadline = time.monotonic() + timeout_s
    restarts = {child.name: child.restarts for child in before.children}
    while not _is_scaled(now := _read_running(directory, counts, pid=before.pid), counts):
        for service, count in counts.items():
            if (other := control.read_wanted_workers(directory, service)) not in (None, count):
                message = f"another `mathrag scale` has requested {service}={other}"
                raise Conflict(message, hint="wait until it has ended, then repeat yours if you still want it")
            for child in _list_workers(now, service):
                failed = child.restarts - restarts.get(child.name, 0)
                if child.phase != "ready" and failed >= FAILED_STARTS:
                    raise Unavailable(
                        f"`{child.name}` failed to start {failed} times; the stack keeps trying",
                        hint=f"read {child.log}; to stop the tries, request fewer workers: mathrag scale {service}=N",
                    )
        if warning := control.check_space(directory):
            raise Unavailable(warning, hint="free disk space; the stack waits and continues by itself")
        if time.monotonic() > deadline:
            hint = f"check again with `mathrag status --data-dir {directory}`"
            message = f"{_format_scale(counts)} is not reached after {timeout_s} s; the stack keeps trying"
            raise Unavailable(message, hint=hint)
        time.sleep(POLL_S)
    return now


def _read_running(directory: Path, counts: dict[str, int], pid: int | None = None) -> address.State:
    """Return the state of the stack on the directory; with `pid`, it must be the state of this supervisor.

    Raises:
        Unavailable: no stack runs there, or it is starting or stopping.
    """
    holder = control.find_holder(directory)
    options = " ".join(f"--scale {service}={count}" for service, count in counts.items())
    up = f"mathrag up --detach --data-dir {directory} {options}"
    if holder is None or (pid is not None and holder != pid):
        what = "no stack is running" if pid is None else "the stack has stopped"
        hint = f"start one: {up}; in containers: docker compose up --wait --no-recreate {options}"
        raise Unavailable(f"{what} in `{directory}`", hint=hint)
    now = address.read_state(directory)
    if now is None or now.pid != holder or now.phase != "running":
        phase = now.phase if now is not None and now.pid == holder else "starting"
        hint = f"wait until `mathrag status --data-dir {directory}` shows that it is running"
        raise Unavailable(f"the stack in `{directory}` is {phase}", hint=hint)
    if now.wanted is None:
        hint = f"restart it: mathrag down --data-dir {directory}; {up}"
        raise Conflict(f"the stack in `{directory}` runs an older release, which cannot be scaled", hint=hint)
    return now


def _is_scaled(now: address.State, counts: dict[str, int]) -> bool:
    """Return True if the supervisor has read these numbers, and exactly as many workers exist and are ready."""
    for service, count in counts.items():
        workers = _list_workers(now, service)
        if (now.wanted or {}).get(service) != count or len(workers) != count:
            return False
        if any(child.phase != "ready" for child in workers):
            return False
    return True


def _list_workers(now: address.State, service: str) -> list[address.ChildState]:
    return [child for child in now.children if child.service == service]


def _format_scale(counts: dict[str, int]) -> str:
    return ", ".join(f"{service}={count}" for service, count in counts.items())


def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the processes of the stack, their ports and restarts; exits with 1 when nothing runs."""
    with report_errors(as_json=as_json):
        directory = require_directory(data_dir)
        running = control.find_holder(directory) is not None
        last = address.read_state(directory) if running else None
        warning = control.check_space(directory) if running else None
        if as_json:
            print_json({"running": running, "data_dir": str(directory), "warning": warning, "stack": last})
        elif running:
            if last is None:
                typer.echo(f"Starting on {directory}.")
            else:
                typer.echo(f"{last.phase} at {last.url} (supervisor {last.pid})\n")
                _print_children(last.children)
            typer.echo(f"\nwarning: {warning}; the table may be old" if warning else "", nl=bool(warning))
        else:
            typer.echo(f"Nothing runs on {directory}. Start it with `mathrag up`.")
        raise typer.Exit(Exit.DONE if running else Exit.FINDING)


def resolve_directory(given: Path | None) -> Path:
    """Return the given data directory, or the configured one, as an absolute path."""
    return (given or configured_data_dir()).absolute()


def require_directory(given: Path | None) -> Path:
    """Return the data directory like `resolve_directory`, for a command that does not create one.

    Raises:
        NotFound: `given` does not exist.
    """
    directory = resolve_directory(given)
    if given is not None and not directory.exists():
        hint = f"correct --data-dir, or start a new stack there: mathrag up --detach --data-dir {directory}"
        raise NotFound(f"the data directory `{directory}` does not exist", hint=hint)
    return directory


def _print_children(children: Iterable[address.ChildState]) -> None:
    rows = [(each.name, each.phase, each.pid or "-", each.port or "-", each.restarts) for each in children]
    for name, phase, pid, port, restarts in (("NAME", "PHASE", "PID", "PORT", "RESTARTS"), *rows):
        typer.echo(f"  {name:<14}{phase:<14}{pid!s:>8}{port!s:>8}{restarts!s:>10}")


UNIT = "mathrag.service"
SYSTEM_FOLDER = Path("/etc/systemd/system")
SYSTEMD_STOP_S = 180
"""Longest stop in seconds: servers and services have 10 to 30 s each, one after another."""

TEXT = """\
# Written by `mathrag service install`.
[Unit]
Description=MathRAG-Gate on {data_dir}
{network}
[Service]
Type=exec
{user}WorkingDirectory={folder}
{environment}ExecStart={command}
Restart=on-failure
RestartSec=5
# Exit codes for a wrong command line or configuration, which another start does not correct.
RestartPreventExitStatus=2 4
# systemd signals only the supervisor, which stops the services and then the servers.
KillMode=mixed
TimeoutStopSec={stop_s}
# The supervisor restarts a service that the kernel kills because memory is full.
OOMPolicy=continue
UMask=0077

[Install]
WantedBy={target}
"""

NETWORK = """\
Wants=network-online.target
After=network-online.target
"""
"""Lines for units of the system; a user's systemd does not have this target."""
FOLDERS = ("MATHRAG_CONFIG", "MATHRAG_SECRETS_DIR")
"""Environment variables with a path, which are copied into the unit."""
NOT_NEEDED = frozenset((*FOLDERS, "MATHRAG_DATA_DIR", "MATHRAG_URL", "MATHRAG_API_KEY"))

service = typer.Typer(no_args_is_help=True)

User = Annotated[bool, typer.Option("--user", help="Install for this user (`systemctl --user`), without root.")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of the API (default: `port` in the settings, or 8080).")
]
Print = Annotated[bool, typer.Option("--print", help="Print the unit; write nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


@service.command()
def install(
    user: User = False,
    data_dir: DataDir = None,
    port: Port = None,
    show: Print = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a systemd unit that runs `mathrag up` in this folder, and print the commands that start it."""
    with report_errors(as_json=as_json):
        unit = make_unit(resolve_directory(data_dir), port, user=user)
        if show:
            typer.echo(unit, nl=False)
            return
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        path = (home / "systemd" / "user" if user else SYSTEM_FOLDER) / UNIT
        if path.exists() and not force:
            raise Failed(
                "conflict", f"`{path}` already exists", "add --force to replace it, or --print to see the new unit"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(unit, "utf-8")
        except PermissionError as error:
            raise Failed(
                "invalid", f"`{path}` cannot be written: {os.strerror(error.errno or 0).lower()}",
                f"to install for all users: sudo {sys.executable} -P -m mathrag.cli.main service install;"
                " to install for yourself alone, add --user",
            ) from error  # fmt: skip
        systemctl = "systemctl --user" if user else "sudo systemctl"
        # Without lingering, systemd ends a user's services when the user logs out.
        lingering = [f"loginctl enable-linger {getpass.getuser()}"] if user else []
        logs = f"journalctl {'--user ' if user else ''}--unit mathrag --follow"
        commands = [f"{systemctl} daemon-reload", f"{systemctl} enable --now mathrag", *lingering, logs]
        if as_json:
            print_json({"unit": str(path), "next": commands})
            return
        typer.echo(f"Wrote {path}. To start the stack now and at every boot:")
        for command in commands:
            typer.echo(f"  {command}")
        if missing := sorted(name for name in os.environ if name.startswith("MATHRAG_") and name not in NOT_NEEDED):
            hint = "set them in mathrag.yaml, or with `systemctl edit mathrag`"
            typer.echo(f"warning: the unit does not set {', '.join(missing)}: {hint}", err=True)


def make_unit(data_dir: Path, port: int | None, *, user: bool) -> str:
    """Return the text of the unit.

    Raises:
        Failed: a path has a character that is not allowed in a unit.
    """
    command = [sys.executable, "-P", "-m", "mathrag.cli.main", "up", "--data-dir", str(data_dir)]
    command += ["--port", str(port)] if port else []
    # Model servers may only be found through PATH, and systemd's default PATH is short.
    variables = {"PATH": os.environ.get("PATH", os.defpath)}
    variables |= {name: str(Path(os.environ[name]).absolute()) for name in FOLDERS if os.environ.get(name)}
    owner = os.environ.get("SUDO_USER") or getpass.getuser()
    return TEXT.format(
        data_dir=_escape(str(data_dir)),
        network="" if user else NETWORK,
        user="" if user else f"User={owner}\n",
        folder=_escape(str(Path.cwd())),
        environment="".join(f"Environment={_quote(f'{name}={value}')}\n" for name, value in variables.items()),
        command=" ".join(_quote(word).replace("$", "$$") for word in command),
        stop_s=SYSTEMD_STOP_S,
        target="default.target" if user else "multi-user.target",
    )


def _escape(value: str) -> str:
    """Escape a value, so that systemd replaces nothing in it."""
    if not value.isprintable():
        raise Failed(
            "invalid", f"path {value!r} has a character that is not allowed in a systemd unit", "choose another folder"
        )
    return value.replace("%", "%%")


def _quote(word: str) -> str:
    """Return a word of a command or of the environment, quoted for systemd."""
    escaped = _escape(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
