"""Looks at what an Ollama server has loaded, and at what its tags name."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from shared.models.ollama import PADDING, Ollama, Resident

POLL_S = 0.2
MIB = 1 << 20


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How a model must be resident. `on_gpu`: wholly."""

    tag: str
    digest: str
    context: int
    on_gpu: bool


def astray(found: Sequence[Resident], named: str | None, wanted: Wanted, held: Collection[str]) -> str | None:
    """What is wrong with a server's residents; None where `wanted` is there as it was pinned, and nobody but ours.

    `named`: the digest of what the tag names now. A server keeps a runner for the file of its weights, and lists it
    under the digest that it was loaded for. So a tag that was created again with another SYSTEM, TEMPLATE or PARAMETER
    is answered by the same runner, to another prompt.
    """
    ours = next((each for each in found if each.digest == wanted.digest), None)
    foreign = [each.name for each in found if each.digest not in held]
    if named is None:
        return f"{wanted.tag} was removed from the server; pull or create it again"
    if named != wanted.digest:
        return f"{wanted.tag} was pulled or created again; restart the guard and submit jobs for it, or bring it back"
    if foreign:
        beside = "as well" if ours else "in its place"
        return f"{', '.join(foreign)} is loaded {beside}, and not by this guard: ollama stop {foreign[0]}"
    if ours is None:
        return f"{wanted.tag} is not loaded any more: it was stopped, or made room for another model"
    if wanted.on_gpu and ours.size_vram < ours.size:
        outside, all_of_it = (ours.size - ours.size_vram) // MIB, ours.size // MIB
        said = f"{outside} of {all_of_it} MiB of {wanted.tag} are not on the GPU"
        return f"{said}; lower `context` or free memory"
    if not wanted.context <= ours.context_length < wanted.context + PADDING:
        return f"{wanted.tag} has a context of {ours.context_length}, not {wanted.context}; set `context` to it"
    return None


async def look(api: Ollama, wanted: Wanted, held: Collection[str]) -> tuple[Sequence[Resident], str | None]:
    """What is loaded, and what is wrong with it; `held`: the digests that this guard has loaded.

    Raises:
        OllamaFailed: nobody can tell.
    """
    found, listed = await asyncio.gather(api.resident(), api.listed(wanted.tag))
    return found, astray(found, listed.digest if listed else None, wanted, held)


async def gone(api: Ollama, digests: set[str], within_s: float) -> bool:
    """Whether they left the list in time; it is looked at least once."""
    looks = round(within_s / POLL_S)
    while digests & {each.digest for each in await api.resident()}:
        if looks <= 0:
            return False
        looks -= 1
        await asyncio.sleep(POLL_S)
    return True
