"""The service itself: its health, devices, settings and parameters."""

from collections.abc import Mapping
from typing import Any

from mathrag.client import configuration, devices, service
from mathrag.client.answers import Configuration, ConfigurationDifferences, DeviceView, Now, Readiness, Setting
from mathrag.client.operations import C, Group, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request


def alive() -> Request[Any]:
    """Check that the process answers."""
    return service.alive()


def readiness() -> Request[Any]:
    """Run the readiness checks of the server."""
    return service.readiness()


def checks() -> Request[Any]:
    """Run the server's checks of everything that a job needs."""
    return service.checks()


def now() -> Request[Any]:
    """List the running and the waiting work."""
    return Request(path="/v1/now")


def settings() -> Request[Any]:
    """List every setting with its value, without secrets."""
    return Request(path="/v1/settings")


class Service(Group[C]):
    """The service itself."""

    alive = Operation(alive, dict[str, str])
    readiness = Operation(readiness, Readiness)
    checks = Operation(checks, Readiness)
    now = Operation(now, Now)
    settings = Operation(settings, list[Setting])


def list_devices() -> Request[Any]:
    """List the devices with the models that they hold."""
    return devices.list_devices()


def get(name: str) -> Request[Any]:
    """Show a device with its models, memory and latest flips."""
    return devices.get(name)


def drain(name: str, *, reason: str | None = None) -> Request[Any]:
    """Have a device unload everything and load nothing until it is released."""
    return devices.drain(name, reason)


def release(name: str) -> Request[Any]:
    """Let a drained device load models again."""
    return devices.release(name)


def retry(name: str) -> Request[Any]:
    """Have a quarantined device tried again at once."""
    return devices.retry(name)


class Devices(Group[C]):
    """Devices that hold models."""

    list = Operation(list_devices, list[DeviceView])
    get = Operation(get, DeviceView)
    drain = Operation(drain, DeviceView)
    release = Operation(release, DeviceView)
    retry = Operation(retry, DeviceView)


def get_defaults() -> Request[Any]:
    """Fetch the default parameters of jobs."""
    return configuration.get()


def change(params: Mapping[str, object]) -> Request[Any]:
    """Change default parameters, nested as a job's; None removes one."""
    return configuration.change(dict(params))


def restore(version: int) -> Request[Any]:
    """Restore an earlier version of the defaults; version 0 is the shipped one."""
    return configuration.restore(version)


def differences(left: int, right: int) -> Request[Any]:
    """Show the differences of two versions of the defaults."""
    return Request(path=f"{configuration.PATH}/differences", query={"left": left, "right": right})


def history() -> Request[Any]:
    """List the versions of the defaults, newest first."""
    return configuration.history(MOST_OF_A_PAGE)


class Configurations(Group[C]):
    """Default parameters of jobs."""

    get = Operation(get_defaults, Configuration)
    change = Operation(change, Configuration)
    restore = Operation(restore, Configuration)
    differences = Operation(differences, ConfigurationDifferences)
    history = Listing(history, Configuration)
