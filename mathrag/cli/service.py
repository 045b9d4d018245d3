"""`mathrag service`: have systemd run the stack."""

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.stack import DataDir, resolve_directory
from mathrag.client.errors import Failed

UNIT = "mathrag.service"
SYSTEM_FOLDER = Path("/etc/systemd/system")
STOP_S = 180
"""Longest ordered stop: servers and services have 10 to 30 s each, one after another."""

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
# Exit codes of a wrong command line or configuration, which another start does not correct.
RestartPreventExitStatus=2 4
# The supervisor alone is signalled: it stops the services and then the servers, in order.
KillMode=mixed
TimeoutStopSec={stop_s}
# The supervisor restarts a service that the kernel ends for want of memory.
OOMPolicy=continue
UMask=0077

[Install]
WantedBy={target}
"""

NETWORK = """\
Wants=network-online.target
After=network-online.target
"""
"""For the system's units; a user's systemd has no such target."""
FOLDERS = ("MATHRAG_CONFIG", "MATHRAG_SECRETS_DIR")
"""Variables that hold a path and are copied into the unit."""
NOT_NEEDED = frozenset((*FOLDERS, "MATHRAG_DATA_DIR", "MATHRAG_URL", "MATHRAG_API_KEY"))

service = typer.Typer(no_args_is_help=True)

User = Annotated[bool, typer.Option("--user", help="Install for this user (`systemctl --user`), without root.")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of the API (default: that of the configuration).")
]
Print = Annotated[bool, typer.Option("--print", help="Print the unit; write nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the unit if it exists.")]


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
        path = (_find_user_folder() if user else SYSTEM_FOLDER) / UNIT
        _write(path, unit, replace=force)
        commands = _list_next_commands(user=user)
        if as_json:
            print_json({"unit": str(path), "next": commands})
            return
        typer.echo(f"Wrote {path}. Start it, and have it started at boot, with:")
        for command in commands:
            typer.echo(f"  {command}")
        if missing := sorted(name for name in os.environ if name.startswith("MATHRAG_") and name not in NOT_NEEDED):
            hint = "set them in mathrag.yaml, or with `systemctl edit mathrag`"
            typer.echo(f"warning: the unit does not set {', '.join(missing)}: {hint}", err=True)


def make_unit(data_dir: Path, port: int | None, *, user: bool) -> str:
    """Return the text of the unit.

    Raises:
        Failed: a path has a character that a unit cannot hold.
    """
    command = [sys.executable, "-m", "mathrag.cli.main", "up", "--data-dir", str(data_dir)]
    command += ["--port", str(port)] if port else []
    # Programs of model servers may be found by PATH alone, and systemd's own is short.
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
        stop_s=STOP_S,
        target="default.target" if user else "multi-user.target",
    )


def _escape(value: str) -> str:
    """Return a value in which systemd replaces nothing."""
    if not value.isprintable():
        raise Failed("invalid", f"{value!r} has a character that a systemd unit cannot hold", "take another folder")
    return value.replace("%", "%%")


def _quote(word: str) -> str:
    """Return a word of a command or of the environment, quoted for systemd."""
    escaped = _escape(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _find_user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _write(path: Path, unit: str, *, replace: bool) -> None:
    if path.exists() and not replace:
        raise Failed("conflict", f"`{path}` exists", "add --force to replace it, or --print to compare")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit, "utf-8")
    except PermissionError as error:
        raise Failed(
            "invalid", f"`{path}` cannot be written: {os.strerror(error.errno or 0).lower()}",
            f"for all users: sudo {sys.executable} -m mathrag.cli.main service install; for this user: add --user",
        ) from error  # fmt: skip


def _list_next_commands(*, user: bool) -> list[str]:
    systemctl = "systemctl --user" if user else "sudo systemctl"
    # Without lingering, systemd ends a user's services when the user logs out.
    lingering = [f"loginctl enable-linger {getpass.getuser()}"] if user else []
    logs = f"journalctl {'--user ' if user else ''}--unit mathrag --follow"
    return [f"{systemctl} daemon-reload", f"{systemctl} enable --now mathrag", *lingering, logs]
