"""Read the header of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), without its tensors.

This is a reader of our own because the `gguf` package is only installed for training, and maps the whole file.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from shared.contracts.architecture import Architecture
from shared.models.metadata import MetadataError, read_count

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 4096
MAX_TENSORS = 1 << 16
MAX_KEY_BYTES = 65_535
"""The format's own limit."""
MAX_TEXT_BYTES = 16 << 20
MAX_ELEMENTS = 1 << 22
"""Upper bound of an array's length, 16 times the largest vocabularies."""
MAX_KEPT = 1024
"""Longest array whose numbers are kept, which are one per layer; of longer ones only the length is."""
TEXT, ARRAY = 8, 9
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TOKENS = "tokenizer.ggml.tokens"


def read_architecture(path: Path) -> Architecture:
    """Read the architecture of the file's model.

    Raises:
        MetadataError: it is not a GGUF file, is truncated, or lacks a key.
    """
    with _open_header(path) as (values, reader):
        return architecture_from_keys(values, weights_bytes=reader.left, vocabulary=values.get(TOKENS))


def read_pooling(path: Path) -> int | None:
    """Read the way of pooling in llama.cpp's numbers (1: mean, 2: first token); None if the file names none.

    Raises:
        MetadataError: as for `read_architecture`.
    """
    with _open_header(path) as (values, _):
        found = values.get(f"{values.get('general.architecture')}.pooling_type")
    return found if isinstance(found, int) else None


def read_tensor_names(path: Path) -> frozenset[str]:
    """Read the names of the tensors.

    Raises:
        MetadataError: as for `read_architecture`.
    """
    with _open_header(path) as (_, reader):
        return frozenset(reader.read_tensor_names())


@contextmanager
def _open_header(path: Path) -> Iterator[tuple[dict[str, Any], "_HeaderReader"]]:
    """Open a file and yield the header's values and the reader of what follows them."""
    try:
        with path.open("rb") as file:
            reader = _HeaderReader(file, path.stat().st_size)
            values = reader.read_header()
            _refuse_parts(values)
            yield values, reader
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}") from error
    except MetadataError as error:
        raise MetadataError(f"{path}: {error}") from error


def _refuse_parts(values: Mapping[str, Any]) -> None:
    """Refuse one part of a split file, whose size tells nothing about the other parts."""
    if values.get("split.count", 1) != 1:
        raise MetadataError("it is one of several parts; merge them with `llama-gguf-split --merge`")


def architecture_from_keys(values: Mapping[str, Any], *, weights_bytes: int, vocabulary: int | None) -> Architecture:
    """Make the architecture from the format's keys, which Ollama shows unchanged.

    `vocabulary` is the number of tokens, for files without a key for it.

    Raises:
        MetadataError: a key is missing or malformed.
    """
    family = values.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise MetadataError("`general.architecture` is missing")
    heads = read_count(values, f"{family}.attention.head_count")
    embedding = read_count(values, f"{family}.embedding_length")
    return Architecture(
        weights_bytes=weights_bytes,
        layers=read_count(values, f"{family}.block_count"),
        heads=heads,
        kv_heads=read_count(values, f"{family}.attention.head_count_kv", heads),
        head_dim=read_count(values, f"{family}.attention.key_length", embedding // heads or 1),
        embedding=embedding,
        vocabulary=read_count(values, f"{family}.vocab_size", vocabulary),
        trained_context=read_count(values, f"{family}.context_length"),
        name=family,
    )


class _HeaderReader:
    """Reads a header sequentially; refuses counts above their bounds and values beyond the file's end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._tensors = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
        return self._size - self._file.tell()

    def read_header(self) -> dict[str, Any]:
        """Read the key/value pairs, up to where the tensors' descriptions begin."""
        if self._take(4) != MAGIC:
            raise MetadataError("not a GGUF file")
        version = self._read_number("<I")
        if version not in VERSIONS:
            raise MetadataError(
                f"GGUF version {version} is not supported, only {VERSIONS[0]} and {VERSIONS[1]} in little-endian"
            )
        self._tensors = self._read_count(MAX_TENSORS, "tensors")
        pairs = self._read_count(MAX_KEYS, "keys")
        return dict(self._read_pair() for _ in range(pairs))

    def read_tensor_names(self) -> Iterator[str]:
        """Read the names of the tensors after the header, and skip their dimensions, types and offsets."""
        for _ in range(self._tensors):
            yield self._read_key()
            self._skip(8 * self._read_number("<I") + 12)

    def _read_pair(self) -> tuple[str, Any]:
        return self._read_key(), self._read_value(self._read_number("<I"))

    def _read_key(self) -> str:
        return self._take(self._read_count(MAX_KEY_BYTES, "bytes of a key")).decode("utf-8", "replace")

    def _read_value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._take(self._read_count(MAX_TEXT_BYTES, "bytes of text")).decode("utf-8", "replace")
        if kind == ARRAY:
            return self._read_array()
        if kind not in NUMBERS:
            raise MetadataError(f"a value has the unknown type {kind}")
        return self._read_number(NUMBERS[kind])

    def _read_array(self) -> Any:
        kind = self._read_number("<I")
        length = self._read_count(MAX_ELEMENTS, "elements")
        if kind == TEXT:
            for _ in range(length):
                self._skip(self._read_count(MAX_TEXT_BYTES, "bytes of text"))
            return length
        if kind not in NUMBERS:
            raise MetadataError(f"an array has elements of the unsupported type {kind}")
        if length > MAX_KEPT:
            self._skip(length * struct.calcsize(NUMBERS[kind]))
            return length
        return [self._read_number(NUMBERS[kind]) for _ in range(length)]

    def _read_count(self, most: int, what: str) -> int:
        found: int = self._read_number("<Q")
        if found > most:
            raise MetadataError(f"{found} {what}, more than {most}")
        return found

    def _read_number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _take(self, length: int) -> bytes:
        found = self._file.read(length)
        if len(found) < length:
            raise MetadataError("the file is truncated")
        return found

    def _skip(self, length: int) -> None:
        if self._file.tell() + length > self._size:
            raise MetadataError("the file is truncated")
        self._file.seek(length, 1)
