"""Read the files of a ZIP archive one after another, also with Zstandard compression, as inspect_ai writes it."""

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
    """Yield the content of the files whose whole names match `wanted`. Each of them is held in memory, so one has at
    most `most_of_a_file` bytes, and all together have at most `most`.

    Raises:
        InvalidLine: it is cut off or damaged, or unpacks to too much.
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
                    # Never more than the archive says: a file that holds more fails by its checksum.
                    yield member.read(each.file_size)
    except DAMAGES as error:
        raise InvalidLine(source, 1, f"is truncated or damaged ({error}); copy the file again") from error
