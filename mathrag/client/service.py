"""Requests for the service's health."""

from typing import Any, TypedDict

from mathrag.client.request import Json, Request


class Health(TypedDict):
    """Results of checks, each as a `Check` of shared/check.py."""

    checks: list[Json]


def alive() -> Request[Any]:
    """Request a sign of life from the process."""
    return Request(path="/healthz")


def readiness() -> Request[Health]:
    """Request the readiness checks; the answer has the same form whether they pass or fail."""
    return Request(path="/readyz", answers_anyway=True)


def checks() -> Request[Health]:
    """Request the server's checks of everything that a job needs."""
    return Request(path="/v1/checks")
