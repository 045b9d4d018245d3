"""Requests for the service: its health, configuration, devices, models, pipelines, plug-ins, and audits."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from mathrag.client.request import Json, Page, Request, segment

# Requests for the service's health.


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


# Parameters that jobs get which do not name them.

CONFIGURATION = "/v1/configuration"


def configuration() -> Request[Json]:
    """Request the parameters that jobs get which do not name them."""
    return Request(path=CONFIGURATION)


def change_configuration(params: Json) -> Request[Json]:
    """Change the given parameters, whatever the current version is; the others keep their values."""
    return Request(method="PATCH", path=CONFIGURATION, body={"params": params}, headers={"If-Match": "*"})


def restore_configuration(version: int) -> Request[Json]:
    """Have an earlier version hold again."""
    return Request(method="POST", path=f"{CONFIGURATION}/restore", body={"version": version}, headers={"If-Match": "*"})


def list_configurations(limit: int) -> Request[Page[Json]]:
    """Request the versions of the configuration, newest first."""
    return Request(path=f"{CONFIGURATION}/history", query={"limit": limit})


# Requests to inspect, drain, release and retry devices.

DEVICES = "/v1/gpus"


class Device(TypedDict):
    """A device with its memory, models, guard and latest flips."""

    device: str
    state: str
    memory: Json
    guard: Json
    drain: Json | None
    models: list[Json]
    flips: list[Json]


def list_devices() -> Request[list[Device]]:
    """Request all devices."""
    return Request(path=DEVICES)


def device(name: str) -> Request[Device]:
    """Request the device of this name."""
    return Request(path=f"{DEVICES}/{segment(name)}")


def drain(name: str, reason: str | None) -> Request[Device]:
    """Request that the device unload its models, and load none until it is released."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/drain", body={"reason": reason}, is_idempotent=True)


def release(name: str) -> Request[Device]:
    """Request that a drained device be used again."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/release", is_idempotent=True)


def retry(name: str) -> Request[Device]:
    """Request that a quarantined device be tried again at once."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/retry", is_idempotent=True)


# Requests for the models, pipelines and plug-ins that jobs can use.


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


# Summarise the result of an audit in a few words.


def summarise_audit(violations: Sequence[Mapping[str, Any]]) -> str:
    """Return a summary such as "clean" or "2 violations".

    Findings that a changed pipeline explains are counted separately, because the rows may be right; audits exported by
    older releases do not mark them.
    """
    unreplayed = sum(each.get("source_changed", False) for each in violations)
    violated = len(violations) - unreplayed
    counts = {"{} violations": violated, "pipeline changed: {} findings": unreplayed}
    return ", ".join(text.format(count) for text, count in counts.items() if count) or "clean"
