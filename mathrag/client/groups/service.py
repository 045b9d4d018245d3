"""Operations on the service, its configuration and devices, and lists of what jobs can use."""

from collections.abc import Mapping
from typing import Any

from mathrag.client import service
from mathrag.client import service as service_module
from mathrag.client.answers import (
    Configuration,
    ConfigurationDifferences,
    DeviceView,
    ModelDetails,
    ModelView,
    Now,
    PipelineDetails,
    PipelineView,
    PluginView,
    Readiness,
    Setting,
)
from mathrag.client.operations import C, Group, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request, segment

# The service itself: its health, devices, settings and parameters.


def alive() -> Request[Any]:
    """Check that the process answers."""
    return service_module.alive()


def readiness() -> Request[Any]:
    """Run the readiness checks of the server."""
    return service_module.readiness()


def checks() -> Request[Any]:
    """Run the server's checks of everything that a job needs."""
    return service_module.checks()


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
    return service_module.list_devices()


def get(name: str) -> Request[Any]:
    """Show a device with its models, memory and latest flips."""
    return service_module.device(name)


def drain(name: str, *, reason: str | None = None) -> Request[Any]:
    """Have a device unload everything and load nothing until it is released."""
    return service_module.drain(name, reason)


def release(name: str) -> Request[Any]:
    """Let a drained device load models again."""
    return service_module.release(name)


def retry(name: str) -> Request[Any]:
    """Have a quarantined device tried again at once."""
    return service_module.retry(name)


class Devices(Group[C]):
    """Devices that hold models."""

    list = Operation(list_devices, list[DeviceView])
    get = Operation(get, DeviceView)
    drain = Operation(drain, DeviceView)
    release = Operation(release, DeviceView)
    retry = Operation(retry, DeviceView)


def get_defaults() -> Request[Any]:
    """Fetch the default parameters of jobs."""
    return service_module.configuration()


def change(params: Mapping[str, object]) -> Request[Any]:
    """Change default parameters, nested as a job's; None removes one."""
    return service_module.change_configuration(dict(params))


def restore(version: int) -> Request[Any]:
    """Restore an earlier version of the defaults; version 0 is the shipped one."""
    return service_module.restore_configuration(version)


def differences(left: int, right: int) -> Request[Any]:
    """Show the differences of two versions of the defaults."""
    return Request(path=f"{service_module.CONFIGURATION}/differences", query={"left": left, "right": right})


def history() -> Request[Any]:
    """List the versions of the defaults, newest first."""
    return service_module.list_configurations(MOST_OF_A_PAGE)


class Configurations(Group[C]):
    """Default parameters of jobs."""

    get = Operation(get_defaults, Configuration)
    change = Operation(change, Configuration)
    restore = Operation(restore, Configuration)
    differences = Operation(differences, ConfigurationDifferences)
    history = Listing(history, Configuration)


# Models, pipelines with their parameters, and plug-ins.


def models() -> Request[Any]:
    """List the configured models."""
    return service.models()


def model(name: str) -> Request[Any]:
    """Show a model with its versions, memory and speed."""
    return Request(path=f"/v1/models/{segment(name)}")


def pipelines() -> Request[Any]:
    """List the pipelines, each with a description."""
    return service.pipelines()


def pipeline(name: str) -> Request[Any]:
    """Show a pipeline with its steps, parameters and source."""
    return Request(path=f"/v1/pipelines/{segment(name)}")


def plugins() -> Request[Any]:
    """List the installed plug-ins, and the missing ones that jobs wait for."""
    return service.plugins()


class Models(Group[C]):
    """Models that jobs can use."""

    list = Operation(models, list[ModelView])
    get = Operation(model, ModelDetails)


class Pipelines(Group[C]):
    """Pipelines that jobs can use."""

    list = Operation(pipelines, list[PipelineView])
    get = Operation(pipeline, PipelineDetails)


class Plugins(Group[C]):
    """Plug-ins, which other distributions add."""

    list = Operation(plugins, list[PluginView])
