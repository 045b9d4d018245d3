"""What drivers read of weights that lie on this host, and whether somebody replaces them."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from services.guard.drivers.ports import DriverError
from shared.contracts.architecture import Architecture
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


async def named_in(arguments: Sequence[str]) -> dict[str, dict[str, str]]:
    """What a model's row says of the files that a command line names, such as a chat template: their digests.

    Empty where it names none.
    """
    named = [(each, Path(each.rpartition("=")[2])) for each in arguments]
    found = {each: await digest(path) for each, path in named if path.is_file() or ("/" in each and path.is_dir())}
    return {"files": found} if found else {}


async def architecture(name: str, path: Path) -> Architecture | None:
    """From a file's header, or from a folder's `config.json`; None where these cannot be read."""
    try:
        return await asyncio.to_thread(metadata.architecture, path)
    except MetadataError as error:
        _log.warning("model %r: its footprint cannot be estimated: %s", name, error)
        return None


class Watched:
    """Weights that a server was started from; made before the start, when they have been hashed already."""

    def __init__(self, path: Path, digest_: str, seen: weights.Signature) -> None:
        self._path = path
        self._digest = digest_
        self._seen = seen
        self.replaced = False
        """Whether a look has found others; it stays so."""

    async def confirm(self) -> bool:
        """Whether they are the same bytes; read anew only where size, times or place on the disk are others."""
        self.replaced = self.replaced or not await self._are_same()
        return not self.replaced

    async def _are_same(self) -> bool:
        try:
            seen = weights.signature(self._path)  # of some files, for each reply: a thread would cost more
            if seen != self._seen and await digest(self._path) != self._digest:
                _log.error("%s was replaced while it was resident; its replies are not believed any more", self._path)
                return False
        except (OSError, DriverError) as error:
            _log.error("%s went away while it was resident: %s", self._path, error)
            return False
        self._seen = seen
        return True


async def watched(path: Path) -> Watched:
    """What is there now.

    Raises:
        DriverError: nothing is there.
    """
    try:
        seen = weights.signature(path)
    except weights.NoWeights as missing:
        raise DriverError(str(missing)) from missing
    return Watched(path, await digest(path), seen)
