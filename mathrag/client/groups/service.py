"""Operations on the service, its configuration and devices, and lists of what jobs can use."""

from mathrag.client import service
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
    Shares,
)
from mathrag.client.operations import C, Group, Listing, Operation


class Service(Group[C]):
    """The service itself."""

    alive = Operation(service.alive, dict[str, str])
    readiness = Operation(service.readiness, Readiness)
    checks = Operation(service.checks, Readiness)
    now = Operation(service.now, Now)
    shares = Operation(service.shares, Shares)
    settings = Operation(service.settings, list[Setting])


class Devices(Group[C]):
    """Devices that hold models."""

    list = Operation(service.list_devices, list[DeviceView])
    get = Operation(service.device, DeviceView)
    drain = Operation(service.drain, DeviceView)
    release = Operation(service.release, DeviceView)
    retry = Operation(service.retry, DeviceView)


class Configurations(Group[C]):
    """Default parameters of jobs."""

    get = Operation(service.configuration, Configuration)
    change = Operation(service.change_configuration, Configuration)
    restore = Operation(service.restore_configuration, Configuration)
    differences = Operation(service.compare_configurations, ConfigurationDifferences)
    history = Listing(service.list_configurations, Configuration)


class Models(Group[C]):
    """Models that jobs can use."""

    list = Operation(service.models, list[ModelView])
    get = Operation(service.model, ModelDetails)


class Pipelines(Group[C]):
    """Pipelines that jobs can use."""

    list = Operation(service.pipelines, list[PipelineView])
    get = Operation(service.pipeline, PipelineDetails)


class Plugins(Group[C]):
    """Plug-ins, which other distributions add."""

    list = Operation(service.plugins, list[PluginView])
