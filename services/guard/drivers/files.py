"""Weights on this host: their digests, their architecture, and whether they are replaced while a server uses them."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from services.guard.drivers.ports import DriverError
from shared.models import files as files_module
from shared.models import metadata
from shared.models.metadata import MetadataError
from shared.shapes import Architecture

_log = logging.getLogger(__name__)


async def digest(path: Path) -> str:
    """Return the SHA-256 of a file or a folder.

    Raises:
        DriverError: the path does not exist.
    """
    try:
        return await asyncio.to_thread(files_module.digest, path)
    except files_module.WeightsMissing as missing:
        raise DriverError(str(missing)) from missing


async def digest_named_files(arguments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the digests of the files that a command line names, such as a chat template, as options of a model.

    Empty if it names none.
    """
    paths = [(each, Path(each.rpartition("=")[2])) for each in arguments]
    found = {each: await digest(path) for each, path in paths if path.is_file() or ("/" in each and path.is_dir())}
    return {"files": found} if found else {}


async def read_architecture(name: str, path: Path) -> Architecture | None:
    """Read the architecture from a file's header or a folder's `config.json`; None if these cannot be read."""
    try:
        return await asyncio.to_thread(metadata.read_architecture, path)
    except MetadataError as error:
        _log.warning("model %r: its footprint cannot be estimated: %s", name, error)
        return None


class WatchedWeights:
    """Weights that a server was started from, with their digest and signature from before the start."""

    def __init__(self, path: Path, digest_: str, seen: files_module.Signature) -> None:
        self._path = path
        self._digest = digest_
        self._seen = seen
        self.replaced = False
        """Whether a check has found other weights; never reset."""

    async def confirm(self) -> bool:
        """Tell whether the bytes are the same; they are hashed again only if size, times or inode differ."""
        self.replaced = self.replaced or not await self._is_unchanged()
        return not self.replaced

    async def _is_unchanged(self) -> bool:
        try:
            signature = files_module.read_signature(
                self._path
            )  # a few `stat` calls for each reply: a thread would cost more
            if signature != self._seen and await digest(self._path) != self._digest:
                _log.error("%s was replaced while it was resident; its replies are discarded", self._path)
                return False
        except (OSError, DriverError) as error:
            _log.error("%s cannot be read any more while it is resident: %s", self._path, error)
            return False
        self._seen = signature
        return True


async def watch_weights(path: Path) -> WatchedWeights:
    """Hash the weights at `path` and return them for later checks.

    Raises:
        DriverError: the path does not exist.
    """
    try:
        signature = files_module.read_signature(path)
    except files_module.WeightsMissing as missing:
        raise DriverError(str(missing)) from missing
    return WatchedWeights(path, await digest(path), signature)
