"""Read the lines of an answer that a server sends piece by piece: server-sent events, or one JSON document a line."""

from collections.abc import AsyncIterator

import httpx2

BOM = "\ufeff"


async def read_lines(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield the lines that are not blank, without blanks around them.

    LF, CR or both end a line (WHATWG HTML, 9.2.6). The HTTP library's own lines also end at U+0085, U+2028 and U+2029,
    which JSON may hold. Bytes that are not UTF-8 are replaced.
    """
    parts: list[bytes] = []
    async for piece in response.aiter_bytes():
        first, *others = piece.replace(b"\r", b"\n").split(b"\n")
        parts.append(first)
        for other in others:
            if line := _decode(parts):
                yield line
            parts = [other]
    if line := _decode(parts):
        yield line


def _decode(parts: list[bytes]) -> str:
    return b"".join(parts).decode(errors="replace").removeprefix(BOM).strip(" \t\n")
