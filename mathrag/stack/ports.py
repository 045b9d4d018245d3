"""Ports of the children: chosen once and remembered, so that a restarted child is found where it was."""

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from mathrag.stack.passwords import write_private

HIGHEST = 65535
Port = Annotated[int, msgspec.Meta(ge=1, le=HIGHEST)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether we could listen there."""
    return refused(port, host) is None


def refused(port: int, host: str) -> int | None:
    """The error number with which the system refuses to listen there; None where we could."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
        return None


def remembered(data_dir: Path, names: Iterable[str]) -> dict[str, int]:
    """A port for each name: that of the last run where it is still free, else a new one."""
    path = data_dir / "ports.json"
    old = _read(path)
    ports: dict[str, int] = {}
    for name in names:
        port = old.get(name) or free_port()
        while port in ports.values() or not is_free(port):
            port = free_port()
        ports[name] = port
    if ports.items() - old.items():
        write_private(path, json.dumps(old | ports))
    return ports


def _read(path: Path) -> dict[str, int]:
    # A file that cannot be read costs the ports, which are free to change.
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Port])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
