"""Devices: what they hold, why, and whether they may be used."""

from typing import TypedDict

from mathrag.client.request import Json, Request, segment

PATH = "/v1/gpus"


class Device(TypedDict):
    """A device, what it holds and why."""

    device: str
    state: str
    memory: Json
    guard: Json
    drain: Json | None
    models: list[Json]
    flips: list[Json]


def listed() -> Request[list[Device]]:
    """All of them."""
    return Request(path=PATH)


def get(name: str) -> Request[Device]:
    """One of them."""
    return Request(path=f"{PATH}/{segment(name)}")


def drain(name: str, reason: str | None) -> Request[Device]:
    """Unload everything and load nothing until it is released."""
    return Request(method="POST", path=f"{PATH}/{segment(name)}/drain", body={"reason": reason})


def release(name: str) -> Request[Device]:
    """Let a drained device be used again."""
    return Request(method="POST", path=f"{PATH}/{segment(name)}/release")
