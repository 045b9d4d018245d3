"""Ports of the children, chosen once and remembered, so that a restarted child keeps its address."""

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from mathrag.stack.passwords import write_private

HIGHEST = 65535
Port = Annotated[int, msgspec.Meta(ge=1, le=HIGHEST)]


def find_free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether this process could listen on the port."""
    return probe_port(port, host) is None


def probe_port(port: int, host: str) -> int | None:
    """Return the error number with which the system refuses to listen on the port; None if it does not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
        return None


def load_ports(data_dir: Path, names: Iterable[str]) -> dict[str, int]:
    """Return a port for each name: that of the last run if it is still free, else a new one."""
    path = data_dir / "ports.json"
    old = _read(path)
    ports: dict[str, int] = {}
    for name in names:
        port = old.get(name) or find_free_port()
        while port in ports.values() or not is_free(port):
            port = find_free_port()
        ports[name] = port
    if ports.items() - old.items():
        write_private(path, json.dumps(old | ports))
    return ports


def _read(path: Path) -> dict[str, int]:
    # If the file cannot be read, new ports are chosen: that breaks nothing.
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Port])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
