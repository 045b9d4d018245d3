"""The header of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), without its tensors.

A reader of our own: the `gguf` package is for training only, and maps the whole file.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from shared.contracts.architecture import Architecture
from shared.models.metadata import MetadataError, whole

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 4096
MOST_TENSORS = 1 << 16
LONGEST_KEY = 65_535
"""Bytes, by the format's own word."""
LONGEST_TEXT = 16 << 20
MOST_ELEMENTS = 1 << 22
"""Of an array: the largest vocabularies have a sixteenth of it."""
KEPT = 1024
"""Longest array whose numbers are kept: one per layer. Of others the length is what says something."""
TEXT, ARRAY = 8, 9
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TOKENS = "tokenizer.ggml.tokens"


def architecture(path: Path) -> Architecture:
    """What the file says of its model.

    Raises:
        MetadataError: it is no GGUF file, broken off, or says too little.
    """
    with _opened(path) as (values, reader):
        return of_keys(values, weights_bytes=reader.left, vocabulary=values.get(TOKENS))


def pooling(path: Path) -> int | None:
    """How one vector is made of a text's tokens, in llama.cpp's numbers (1: mean, 2: first token); None: not said.

    Raises:
        MetadataError: as for `architecture`.
    """
    with _opened(path) as (values, _):
        found = values.get(f"{values.get('general.architecture')}.pooling_type")
    return found if isinstance(found, int) else None


def tensors(path: Path) -> frozenset[str]:
    """Names of the tensors.

    Raises:
        MetadataError: as for `architecture`.
    """
    with _opened(path) as (_, reader):
        return frozenset(reader.names())


@contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, Any], "_Reader"]]:
    """The header's keys, and the reader of what follows them."""
    try:
        with path.open("rb") as file:
            reader = _Reader(file, path.stat().st_size)
            values = reader.header()
            _refuse_parts(values)
            yield values, reader
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}") from error
    except MetadataError as error:
        raise MetadataError(f"{path}: {error}") from error


def _refuse_parts(values: Mapping[str, Any]) -> None:
    """The size of one part says nothing of the others'."""
    if values.get("split.count", 1) != 1:
        raise MetadataError("one of several parts; `llama-gguf-split --merge` makes one file of them")


def of_keys(values: Mapping[str, Any], *, weights_bytes: int, vocabulary: int | None) -> Architecture:
    """From the format's keys, which Ollama shows as they are; `vocabulary`: tokens, where no key says how many.

    Raises:
        MetadataError: a key is missing or has no use.
    """
    family = values.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise MetadataError("`general.architecture` is missing")
    heads = whole(values, f"{family}.attention.head_count")
    embedding = whole(values, f"{family}.embedding_length")
    return Architecture(
        weights_bytes=weights_bytes,
        layers=whole(values, f"{family}.block_count"),
        heads=heads,
        kv_heads=whole(values, f"{family}.attention.head_count_kv", heads),
        head_dim=whole(values, f"{family}.attention.key_length", embedding // heads or 1),
        embedding=embedding,
        vocabulary=whole(values, f"{family}.vocab_size", vocabulary),
        trained_context=whole(values, f"{family}.context_length"),
        name=family,
    )


class _Reader:
    """Reads on; whatever would lead beyond the file's end is refused before it is believed."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._tensors = 0

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return self._size - self._file.tell()

    def header(self) -> dict[str, Any]:
        """The key/value pairs; afterwards the file stands where the tensors begin."""
        if self._take(4) != MAGIC:
            raise MetadataError("no GGUF file")
        version = self._number("<I")
        if version not in VERSIONS:
            raise MetadataError(f"GGUF version {version}; known are {VERSIONS[0]} and {VERSIONS[1]}, little-endian")
        self._tensors = self._count(MOST_TENSORS, "tensors")
        pairs = self._count(MOST_KEYS, "keys")
        return dict(self._pair() for _ in range(pairs))

    def names(self) -> Iterator[str]:
        """Of the tensors, after the header: each with its dimensions, type and place."""
        for _ in range(self._tensors):
            yield self._key()
            self._skip(8 * self._number("<I") + 12)

    def _pair(self) -> tuple[str, Any]:
        return self._key(), self._value(self._number("<I"))

    def _key(self) -> str:
        return self._take(self._count(LONGEST_KEY, "bytes of a key")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._take(self._count(LONGEST_TEXT, "bytes of text")).decode("utf-8", "replace")
        if kind == ARRAY:
            return self._array()
        if kind not in NUMBERS:
            raise MetadataError(f"a value of the unknown type {kind}")
        return self._number(NUMBERS[kind])

    def _array(self) -> Any:
        kind = self._number("<I")
        length = self._count(MOST_ELEMENTS, "elements")
        if kind == TEXT:
            for _ in range(length):
                self._skip(self._count(LONGEST_TEXT, "bytes of text"))
            return length
        if kind not in NUMBERS:
            raise MetadataError(f"an array of the type {kind}")
        if length > KEPT:
            self._skip(length * struct.calcsize(NUMBERS[kind]))
            return length
        return [self._number(NUMBERS[kind]) for _ in range(length)]

    def _count(self, most: int, what: str) -> int:
        found: int = self._number("<Q")
        if found > most:
            raise MetadataError(f"{found} {what}, more than {most}")
        return found

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _take(self, length: int) -> bytes:
        found = self._file.read(length)
        if len(found) < length:
            raise MetadataError("broken off")
        return found

    def _skip(self, length: int) -> None:
        if self._file.tell() + length > self._size:
            raise MetadataError("broken off")
        self._file.seek(length, 1)
