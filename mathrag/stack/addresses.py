"""What an operator's own shell reaches without the API: the configured database, or that of a stack which runs here."""

import json
from collections.abc import Mapping
from pathlib import Path

from mathrag.client import stack_state
from mathrag.client.errors import Failed
from mathrag.stack import lock, passwords
from mathrag.stack.postgres import Postgres
from mathrag.stack.redis import Redis
from shared.device_settings import Device
from shared.settings import Settings, load

ADDRESSES = ("database_url", "redis_url", "retriever_url", "guard_url", "service_key")
HTTP = {"retriever": "retriever_url", "guard": "guard_url"}
"""Settings of addresses, by the name of the child that listens there."""


def database_url(data_dir: Path | None) -> str:
    """MATHRAG_DATABASE_URL, else the embedded database of `data_dir`, as the application's role.

    Raises:
        Failed: neither is there.
    """
    settings = load()
    return settings.database_url or embedded(data_dir or settings.data_dir).url()


def embedded(data_dir: Path) -> Postgres:
    """The PostgreSQL that runs on `data_dir`.

    Raises:
        Failed: none does.
    """
    running = stack_state.read(data_dir) if lock.holder(data_dir) is not None else None
    ports = [child.port for child in running.children if child.name == "postgres"] if running else []
    if not ports or ports[0] is None:
        hint = "start it with `mathrag up`, or set MATHRAG_DATABASE_URL"
        raise Failed("unreachable", f"no PostgreSQL of ours runs on {data_dir.absolute()}", hint=hint)
    return Postgres(data_dir / "postgres", port=ports[0], passwords=passwords.remembered(data_dir))


def running(settings: Settings, data_dir: Path | None) -> Settings:
    """`settings` with the addresses of the stack that runs on the data directory, where they name none themselves."""
    directory = data_dir or settings.data_dir
    now = stack_state.read(directory) if lock.holder(directory) is not None else None
    ports = {} if now is None else {child.name: child.port for child in now.children}
    addresses = {} if now is None else _addresses(directory, ports)
    missing = {key: value for key, value in addresses.items() if not getattr(settings, key)}
    devices = tuple(_addressed(device, ports.get(name)) for name, device in list(settings.guards().items())[1:])
    return settings.model_copy(update={**missing, "devices": devices, "data_dir": directory})


def variables_of(settings: Settings) -> dict[str, str]:
    """Variables by which a program of a service finds what `running` has found."""
    found = {"DATA_DIR": str(settings.data_dir), **{name.upper(): getattr(settings, name) for name in ADDRESSES}}
    if settings.devices:
        found["DEVICES"] = json.dumps([device.model_dump(mode="json") for device in settings.devices])
    return {f"MATHRAG_{name}": value for name, value in found.items()}


def _addressed(device: Device, port: int | None) -> Device:
    """A further device with the address of the guard that runs for it here, where it names none itself."""
    url = device.guard_url or (f"http://127.0.0.1:{port}" if port else "")
    return device.model_copy(update={"guard_url": url})


def _addresses(directory: Path, ports: Mapping[str, int | None]) -> dict[str, str]:
    """What the supervisor tells its children."""
    secret = passwords.remembered(directory)
    found = {key: f"http://127.0.0.1:{ports[name]}" for name, key in HTTP.items() if ports.get(name)}
    if port := ports.get("postgres"):
        found["database_url"] = Postgres(directory / "postgres", port=port, passwords=secret).url()
    if port := ports.get("redis"):
        found["redis_url"] = Redis(directory / "redis", port=port, passwords=secret).url()
    return {**found, "service_key": secret.service}
