"""Addresses that an operator's shell uses without the API: the configured ones, or those of a stack that runs here."""

import json
from collections.abc import Mapping
from pathlib import Path

from mathrag.client import stack_state
from mathrag.client.errors import Failed
from mathrag.stack import lock, passwords
from mathrag.stack.postgres import Postgres
from mathrag.stack.redis import Redis
from shared.settings import Device, Settings, load

ADDRESSES = ("database_url", "redis_url", "retriever_url", "guard_url", "service_key")
HTTP = {"retriever": "retriever_url", "guard": "guard_url"}
"""Settings that hold addresses, by the name of the child that listens there."""


def find_database_url(data_dir: Path | None) -> str:
    """Return MATHRAG_DATABASE_URL, else the URL of the database embedded in `data_dir`, in the application's role.

    Raises:
        Failed: no database is configured, and none runs on the data directory.
    """
    settings = load()
    return settings.database_url or find_embedded(data_dir or settings.data_dir).url()


def find_embedded(data_dir: Path) -> Postgres:
    """Return the PostgreSQL server that runs on `data_dir`.

    Raises:
        Failed: none runs there.
    """
    running = stack_state.read(data_dir) if lock.find_holder(data_dir) is not None else None
    ports = [child.port for child in running.children if child.name == "postgres"] if running else []
    if not ports or ports[0] is None:
        hint = "start it with `mathrag up`, or set MATHRAG_DATABASE_URL"
        raise Failed("unreachable", f"no PostgreSQL of a stack runs on {data_dir.absolute()}", hint=hint)
    return Postgres(data_dir / "postgres", port=ports[0], passwords=passwords.load_passwords(data_dir))


def add_running_addresses(settings: Settings, data_dir: Path | None) -> Settings:
    """Return `settings` with missing addresses filled in from the stack that runs on the data directory, if any."""
    directory = data_dir or settings.data_dir
    now = stack_state.read(directory) if lock.find_holder(directory) is not None else None
    ports = {} if now is None else {child.name: child.port for child in now.children}
    addresses = {} if now is None else _list_child_addresses(directory, ports)
    missing = {key: value for key, value in addresses.items() if not getattr(settings, key)}
    devices = tuple(_set_guard_url(device, ports.get(name)) for name, device in list(settings.guards().items())[1:])
    return settings.model_copy(update={**missing, "devices": devices, "data_dir": directory})


def list_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that pass the addresses of `settings` to a program of a service."""
    found = {"DATA_DIR": str(settings.data_dir), **{name.upper(): getattr(settings, name) for name in ADDRESSES}}
    if settings.devices:
        found["DEVICES"] = json.dumps([device.model_dump(mode="json") for device in settings.devices])
    return {f"MATHRAG_{name}": value for name, value in found.items()}


def _set_guard_url(device: Device, port: int | None) -> Device:
    """Return a further device with the address of its local guard, unless it names one itself."""
    url = device.guard_url or (f"http://127.0.0.1:{port}" if port else "")
    return device.model_copy(update={"guard_url": url})


def _list_child_addresses(directory: Path, ports: Mapping[str, int | None]) -> dict[str, str]:
    """Return the addresses that the supervisor passes to its children."""
    secret = passwords.load_passwords(directory)
    found = {key: f"http://127.0.0.1:{ports[name]}" for name, key in HTTP.items() if ports.get(name)}
    if port := ports.get("postgres"):
        found["database_url"] = Postgres(directory / "postgres", port=port, passwords=secret).url()
    if port := ports.get("redis"):
        found["redis_url"] = Redis(directory / "redis", port=port, passwords=secret).url()
    return {**found, "service_key": secret.service}
