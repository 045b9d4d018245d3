"""Models and pipelines that jobs may name."""

from typing import TypedDict

from mathrag.client.request import Json, Request


class Model(TypedDict):
    """A model that jobs may name."""

    name: str
    driver: str
    default_for: list[str]
    context: int
    footprint_mib: int
    registered: bool
    digest: str | None
    warning: str | None


class Pipeline(TypedDict):
    """A pipeline that jobs may name."""

    name: str
    hash: str
    summary: str
    changed: list[Json]


def models() -> Request[list[Model]]:
    """As configured."""
    return Request(path="/v1/models")


def pipelines() -> Request[list[Pipeline]]:
    """Each with what it does."""
    return Request(path="/v1/pipelines")
