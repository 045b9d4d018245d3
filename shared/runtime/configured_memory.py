"""What configured models take, in MiB: what they declare, else what is assumed from their files.

Only files that lie on this machine tell anything: where guards have machines of their own, what is declared is the same
everywhere.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from shared.contracts.architecture import Architecture
from shared.device_settings import Device
from shared.lease.memory import estimate_memory
from shared.model_settings import Model
from shared.models.metadata import MetadataError, files


def memory_of_all(models: Mapping[str, Model], devices: Iterable[Device]) -> dict[str, int]:
    """By name; on the device that asks for most, as nobody knows yet where each will be."""
    on_gpu = any(not device.id.startswith("cpu") for device in devices)
    return {name: memory_of(model, on_gpu=on_gpu) for name, model in models.items()}


def memory_of(model: Model, *, on_gpu: bool) -> int:
    """Of one; 0: nothing is declared, and nothing can be told."""
    memory = estimate_memory(
        declared_mib=model.footprint_mib,
        architecture=_architecture(model),
        context=model.context,
        parallel=model.parallel,
        on_gpu=on_gpu,
    )
    return memory.at(model.parallel)


def _architecture(model: Model) -> Architecture | None:
    if model.footprint_mib or model.path is None:
        return None
    try:
        return _read(model.path, model.path.stat().st_mtime_ns)
    except (MetadataError, OSError):
        return None


@cache
def _read(path: Path, _modified_ns: int) -> Architecture:
    return files.architecture(path)
