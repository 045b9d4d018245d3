"""Check what an Ollama server has loaded and which models its tags name."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from shared.models.ollama import PADDING, LoadedModel, Ollama, Pulled

POLL_S = 0.2
MIB = 1 << 20


class ExpectedModel(msgspec.Struct, frozen=True, kw_only=True):
    """How a model must be resident; with `on_gpu`, all of its layers on the GPU."""

    tag: str
    pulled: Pulled
    """What the tag named when the model was loaded."""
    context: int
    on_gpu: bool


def find_deviation(
    found: Sequence[LoadedModel], pulled: Pulled | None, wanted: ExpectedModel, held: Collection[str]
) -> str | None:
    """Describe what is wrong with a server's resident models; None if `wanted` is there as pinned, and no foreign one.

    `pulled` is what the tag names now; `held` are the digests that this guard has loaded. A server keeps one runner per
    file of weights and lists it under the digest that it was loaded for. So a tag that was created again with another
    SYSTEM, TEMPLATE or PARAMETER is answered by the same runner, from another prompt.
    """
    ours = next((each for each in found if each.digest == wanted.pulled.digest), None)
    foreign = [each.name for each in found if each.digest not in held]
    if pulled is None:
        return f"{wanted.tag} was removed from the server; pull or create it again"
    if pulled.digest != wanted.pulled.digest:
        fix = "restart the guard and submit jobs for the new model, or restore the old one"
        return f"{wanted.tag} was pulled or created again; {fix}"
    if pulled.modified_at != wanted.pulled.modified_at:
        return f"{wanted.tag} was written again: it may have been another model since the last check"
    if foreign:
        beside = "as well" if ours else "in its place"
        return f"{', '.join(foreign)} is loaded {beside}, and not by this guard: ollama stop {foreign[0]}"
    if ours is None:
        return f"{wanted.tag} is not loaded any more: it was stopped or evicted"
    if wanted.on_gpu and ours.size_vram < ours.size:
        outside, all_of_it = (ours.size - ours.size_vram) // MIB, ours.size // MIB
        return f"{outside} of {all_of_it} MiB of {wanted.tag} are not on the GPU; lower `context` or free memory"
    if not wanted.context <= ours.context_length < wanted.context + PADDING:
        return f"{wanted.tag} has a context of {ours.context_length}, not {wanted.context}; set `context` to it"
    return None


async def inspect_residents(
    api: Ollama, wanted: ExpectedModel, held: Collection[str]
) -> tuple[Sequence[LoadedModel], str | None]:
    """Return the resident models and the deviation from `wanted`; `held` are the digests that this guard has loaded.

    Raises:
        OllamaFailed: the server does not answer.
    """
    found, listed = await asyncio.gather(api.list_resident(), api.find_pulled(wanted.tag))
    return found, find_deviation(found, listed, wanted, held)


async def wait_until_gone(api: Ollama, digests: set[str], within_s: float) -> bool:
    """Return whether the digests left the server's list in time; the list is read at least once."""
    polls = round(within_s / POLL_S)
    while digests & {each.digest for each in await api.list_resident()}:
        if polls <= 0:
            return False
        polls -= 1
        await asyncio.sleep(POLL_S)
    return True
