"""What a run needs besides its problems, looked at before anything is started: servers, models, memory, files."""

import asyncio

from msgspec.structs import replace

from mathrag.reproduction import memory_check
from shared.checks.check import Check
from shared.settings import Settings

BUDGET = "budget"
"""The doctor's, which counts what is declared: `memory` counts what a model says of itself, too."""

EMBEDDER = "put bge-small-en-v1.5 as a GGUF there, or name another: --embedder (docs/math.md)"
"""The settings that the doctor would have corrected are the preset's."""


def complete(probed: list[Check], settings: Settings) -> list[Check]:
    """The doctor's checks, and whether the models fit: that cannot be told of a model that is not there."""
    found = [
        replace(check, fix=EMBEDDER) if check.name == "embeddings" and not check.ok else check
        for check in probed
        if check.name != BUDGET
    ]
    if all(check.ok for check in found if check.name.startswith("model ")):
        found.append(asyncio.run(_memory(settings)))
    return found


async def _memory(settings: Settings) -> Check:
    """On the device that has most memory_check."""
    device = max(settings.all_devices(), key=lambda each: each.models_mib)
    return memory_check.checked(await memory_check.wanted(settings), device.models_mib, device.id)
