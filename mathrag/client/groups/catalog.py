"""Models, pipelines with their parameters, and plug-ins."""

from typing import Any

from mathrag.client import catalog
from mathrag.client.answers import ModelDetails, ModelView, PipelineDetails, PipelineView, PluginView
from mathrag.client.operations import C, Group, Operation
from mathrag.client.request import Request, segment


def models() -> Request[Any]:
    """List the configured models."""
    return catalog.models()


def model(name: str) -> Request[Any]:
    """Show a model with its versions, memory and speed."""
    return Request(path=f"/v1/models/{segment(name)}")


def pipelines() -> Request[Any]:
    """List the pipelines, each with a description."""
    return catalog.pipelines()


def pipeline(name: str) -> Request[Any]:
    """Show a pipeline with its steps, parameters and source."""
    return Request(path=f"/v1/pipelines/{segment(name)}")


def plugins() -> Request[Any]:
    """List the installed plug-ins, and the missing ones that jobs wait for."""
    return catalog.plugins()


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
