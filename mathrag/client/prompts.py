"""Requests for prompts: store, list, show, and compare versions."""

from collections.abc import Mapping, Sequence

from mathrag.client.request import Json, Request, segment

PATH = "/v1/prompts"


def create(name: str, text: str, *, system: str = "", examples: Sequence[Mapping[str, str]] = ()) -> Request[Json]:
    """Store a prompt as the next version of its name; content that is already stored returns the existing version."""
    body = {"name": name, "text": text, "system": system, "examples": list(examples)}
    return Request(method="POST", path=PATH, body=body, is_idempotent=True)


def list_prompts() -> Request[list[Json]]:
    """List the newest version of each prompt."""
    return Request(path=PATH)


def get(reference: str) -> Request[Json]:
    """Fetch a prompt: `short`, or one version by `short@2` or `short@HASH`."""
    return Request(path=f"{PATH}/{segment(reference)}")


def versions(name: str) -> Request[list[Json]]:
    """List every version of a prompt, newest first."""
    return Request(path=f"{PATH}/{segment(name)}/versions")


def differences(left: str, right: str) -> Request[Json]:
    """Compare two prompts line by line."""
    return Request(path=f"{PATH}/{segment(left)}/differences", query={"other": right})
