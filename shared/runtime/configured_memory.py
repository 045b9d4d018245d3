"""Memory of configured models in MiB: what they declare, otherwise an estimate from their files.

An estimate needs the file on this machine. Where guards run on other machines, declare `footprint_mib`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from shared.contracts.architecture import Architecture
from shared.device_settings import Device
from shared.lease.memory import estimate_memory
from shared.model_settings import Model
from shared.models.metadata import MetadataError, files


def estimate_all(models: Mapping[str, Model], devices: Iterable[Device]) -> dict[str, int]:
    """Return the memory of each model by name, for the kind of device that needs most: placement is not known yet."""
    on_gpu = any(not device.id.startswith("cpu") for device in devices)
    return {name: estimate_one(model, on_gpu=on_gpu) for name, model in models.items()}


def estimate_one(model: Model, *, on_gpu: bool) -> int:
    """Return the memory of one model; 0 if nothing is declared and nothing can be estimated."""
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
    return files.read_architecture(path)
