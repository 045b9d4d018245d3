"""Checks before a run starts: servers, models, memory and files."""

import asyncio

from msgspec.structs import replace

from mathrag.reproduction import memory_check
from shared.checks.check import Check
from shared.settings import Settings

BUDGET = "budget"
"""The doctor's check of declared memory; our `memory` check replaces it, which also reads the models' metadata."""

EMBEDDER = "put bge-small-en-v1.5 as a GGUF there, or choose another with --embedder (docs/how-to/math.md)"
"""Replaces the doctor's fix, which would change settings that belong to the preset."""


def complete_checks(probed: list[Check], settings: Settings) -> list[Check]:
    """Return the doctor's checks, and whether the models fit into memory if all of them are there."""
    found = [
        replace(check, fix=EMBEDDER) if check.name == "embeddings" and not check.ok else check
        for check in probed
        if check.name != BUDGET
    ]
    if all(check.ok for check in found if check.name.startswith("model ")):
        found.append(asyncio.run(_check_memory(settings)))
    return found


async def _check_memory(settings: Settings) -> Check:
    """Check the memory of the device that has most of it for models."""
    device = max(settings.all_devices(), key=lambda each: each.models_mib)
    return memory_check.check_memory(await memory_check.read_models(settings), device.models_mib, device.id)
