"""What drivers read of weights that lie on this host."""

import asyncio
import logging
from pathlib import Path

from services.guard.drivers.ports import DriverError
from shared.lease.footprint import Architecture
from shared.models import weights
from shared.models.metadata import MetadataError
from shared.models.metadata import files as metadata

_log = logging.getLogger(__name__)


async def digest(path: Path) -> str:
    """SHA-256 of a file or a folder.

    Raises:
        DriverError: nothing is there.
    """
    try:
        return await asyncio.to_thread(weights.digest, path)
    except weights.NoWeights as missing:
        raise DriverError(str(missing)) from missing


async def architecture(name: str, path: Path) -> Architecture | None:
    """From a file's header, or from a folder's `config.json`; None where these cannot be read."""
    try:
        return await asyncio.to_thread(metadata.architecture, path)
    except MetadataError as error:
        _log.warning("model %r: its footprint cannot be estimated: %s", name, error)
        return None
