"""Read the files of a ZIP archive one after another, also with Zstandard compression, which inspect_ai uses."""

import re
import sys
import zlib
from collections.abc import Iterator
from typing import IO

from mathrag.errors import InvalidLine
from mathrag.installation import not_installed

if sys.version_info >= (3, 14):
    import zipfile

    from compression.zstd import ZstdError
else:
    try:
        from backports.zstd import ZstdError, zipfile
    except ModuleNotFoundError as error:
        raise not_installed("backports.zstd", "mathrag[inspect]") from error

MAGIC = b"PK\x03\x04"
DAMAGES = (zipfile.BadZipFile, zlib.error, ZstdError, EOFError, NotImplementedError, RuntimeError, OSError)


def contents(file: IO[bytes], source: str, wanted: re.Pattern[str], most_of_a_file: int, most: int) -> Iterator[bytes]:
    """Yield the content of the files whose whole names match `wanted`. Each file is kept in memory, so it may have at
    most `most_of_a_file` bytes; all files together may have at most `most`.

    Raises:
        InvalidLine: the archive is truncated or damaged, or unpacks to more than the limits.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if wanted.fullmatch(each.filename)]
            sizes = [each.file_size for each in members]
            found = ((max(sizes, default=0), most_of_a_file, "one file"), (sum(sizes), most, "all"))
            for size, limit, what in found:
                if size > limit:
                    message = f"unpacks to {size} bytes in {what}, and at most {limit} are read; split it"
                    raise InvalidLine(source, 1, message)
            for each in members:
                with archive.open(each) as member:
                    # A file never unpacks to more than the size in the archive: a larger one fails its checksum.
                    yield member.read(each.file_size)
    except DAMAGES as error:
        raise InvalidLine(source, 1, f"is truncated or damaged ({error}); copy the file again") from error
