"""Requests to inspect, drain, release and retry devices."""

from typing import TypedDict

from mathrag.client.request import Json, Request, segment

PATH = "/v1/gpus"


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
    return Request(path=PATH)


def get(name: str) -> Request[Device]:
    """Request the device of this name."""
    return Request(path=f"{PATH}/{segment(name)}")


def drain(name: str, reason: str | None) -> Request[Device]:
    """Request that the device unload its models, and load none until it is released."""
    return Request(method="POST", path=f"{PATH}/{segment(name)}/drain", body={"reason": reason}, is_idempotent=True)


def release(name: str) -> Request[Device]:
    """Request that a drained device be used again."""
    return Request(method="POST", path=f"{PATH}/{segment(name)}/release", is_idempotent=True)


def retry(name: str) -> Request[Device]:
    """Request that a quarantined device be tried again at once."""
    return Request(method="POST", path=f"{PATH}/{segment(name)}/retry", is_idempotent=True)
