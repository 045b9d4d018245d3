"""Requests for the models, pipelines and plug-ins that jobs can use."""

from typing import TypedDict

from mathrag.client.request import Json, Request


class Model(TypedDict):
    """A model that jobs can use."""

    name: str
    driver: str
    default_for: list[str]
    context: int
    footprint_mib: int
    registered: bool
    digest: str | None
    warning: str | None


class Pipeline(TypedDict):
    """A pipeline that jobs can use."""

    name: str
    hash: str
    summary: str
    changed: list[Json]
    plugin: Json | None
    """The plug-in that brings the pipeline; None if it is shipped."""


class Plugin(TypedDict):
    """A plug-in that is installed, or that a job waits for."""

    kind: str
    name: str
    distribution: str
    version: str
    hash: str
    state: str
    detail: str
    fix: str
    jobs: list[str]


def models() -> Request[list[Model]]:
    """Request the configured models."""
    return Request(path="/v1/models")


def pipelines() -> Request[list[Pipeline]]:
    """Request the pipelines with their summaries."""
    return Request(path="/v1/pipelines")


def plugins() -> Request[list[Plugin]]:
    """Request the plug-ins that are installed or that jobs wait for, with their states."""
    return Request(path="/v1/plugins")
