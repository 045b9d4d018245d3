"""The service itself: whether it is well."""

from typing import Any, TypedDict

from mathrag.client.request import Json, Request


class Health(TypedDict):
    """What is well and what is not, as `Check` of shared/checks."""

    checks: list[Json]


def alive() -> Request[Any]:
    """Whether the process answers."""
    return Request(path="/healthz")


def readiness() -> Request[Health]:
    """What the server says of itself, well or not."""
    return Request(path="/readyz", answers_anyway=True)


def checks() -> Request[Health]:
    """All that a job needs, as the server sees it."""
    return Request(path="/v1/checks")
