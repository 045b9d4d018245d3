"""Requests for the service: its health, configuration, devices, models, pipelines, plug-ins, and audits."""

from collections.abc import Mapping, Sequence
from typing import Any

from mathrag.client.request import Json, Page, Request, segment

CONFIGURATION = "/v1/configuration"
ANY_VERSION = {"If-Match": "*"}
DEVICES = "/v1/gpus"


def alive() -> Request[Json]:
    """Check that the process answers."""
    return Request(path="/healthz")


def readiness() -> Request[Json]:
    """Run the readiness checks of the server."""
    return Request(path="/readyz", answers_anyway=True)


def checks() -> Request[Json]:
    """Run the server's checks of everything that a job needs."""
    return Request(path="/v1/checks")


def now() -> Request[Json]:
    """List the running and the waiting work."""
    return Request(path="/v1/now")


def shares() -> Request[Json]:
    """Show the weight, project, samples and GPU time of each API key."""
    return Request(path="/v1/shares")


def settings() -> Request[list[Json]]:
    """List every setting with its value, without secrets."""
    return Request(path="/v1/settings")


def configuration() -> Request[Json]:
    """Fetch the default parameters of jobs."""
    return Request(path=CONFIGURATION)


def change_configuration(params: Mapping[str, object]) -> Request[Json]:
    """Change default parameters, nested like a job's; the value None removes one."""
    return Request(method="PATCH", path=CONFIGURATION, body={"params": params}, headers=ANY_VERSION)


def restore_configuration(version: int) -> Request[Json]:
    """Restore an earlier version of the defaults; version 0 is the shipped one."""
    return Request(method="POST", path=f"{CONFIGURATION}/restore", body={"version": version}, headers=ANY_VERSION)


def compare_configurations(left: int, right: int) -> Request[Json]:
    """Show the differences of two versions of the defaults."""
    return Request(path=f"{CONFIGURATION}/differences", query={"left": left, "right": right})


def list_configurations() -> Request[Page[Json]]:
    """List the versions of the defaults, newest first."""
    return Request(path=f"{CONFIGURATION}/history")


def list_devices() -> Request[list[Json]]:
    """List the devices with the models that they hold."""
    return Request(path=DEVICES)


def device(name: str) -> Request[Json]:
    """Show a device with its models, memory and latest flips."""
    return Request(path=f"{DEVICES}/{segment(name)}")


def drain(name: str, *, reason: str | None = None) -> Request[Json]:
    """Unload a device's models and load none until it is released."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/drain", body={"reason": reason}, is_idempotent=True)


def release(name: str) -> Request[Json]:
    """Let a drained device load models again."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/release", is_idempotent=True)


def retry(name: str) -> Request[Json]:
    """Try a quarantined device again at once."""
    return Request(method="POST", path=f"{DEVICES}/{segment(name)}/retry", is_idempotent=True)


def models() -> Request[list[Json]]:
    """List the configured models."""
    return Request(path="/v1/models")


def model(name: str) -> Request[Json]:
    """Show a model with its versions, memory and speed."""
    return Request(path=f"/v1/models/{segment(name)}")


def pipelines() -> Request[list[Json]]:
    """List the pipelines, each with a description."""
    return Request(path="/v1/pipelines")


def pipeline(name: str) -> Request[Json]:
    """Show a pipeline with its steps, parameters and source."""
    return Request(path=f"/v1/pipelines/{segment(name)}")


def plugins() -> Request[list[Json]]:
    """List the installed plug-ins, and the missing ones that jobs wait for."""
    return Request(path="/v1/plugins")


def summarise_audit(violations: Sequence[Mapping[str, Any]]) -> str:
    """Return a summary of an audit, such as "clean" or "2 violations".

    Findings that a changed pipeline explains are counted separately, because the rows may be right; audits exported by
    older releases do not mark them.
    """
    unreplayed = sum(each.get("source_changed", False) for each in violations)
    violated = len(violations) - unreplayed
    counts = {"{} violations": violated, "pipeline changed: {} findings": unreplayed}
    return ", ".join(text.format(count) for text, count in counts.items() if count) or "clean"
