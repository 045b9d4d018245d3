"""Read a model's architecture from GGUF files, Hugging Face folders and Ollama's answers."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from shared.shapes import Architecture

# Read a model's architecture from a GGUF header, a folder of safetensors, or Ollama's `show`.
#
# Files and answers are not trusted: every count is bounded and every field is checked.

MAX_COUNT = 1 << 40
"""Upper bound of all counts and sizes, far above those of any model."""


class MetadataError(Exception):
    """The metadata cannot be used; the message names the file or field."""


def read_count(values: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Read a positive integer; from a list with one per layer, the largest.

    Raises:
        MetadataError: it is missing and has no default, or is not a positive integer below `MAX_COUNT`.
    """
    found = values.get(name)
    if isinstance(found, list):
        found = max((each for each in found if isinstance(each, int)), default=None)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < MAX_COUNT:
        raise MetadataError(
            f"`{name}` must be a whole number, but is {'missing' if found is None else repr(found)[:40]}"
        )
    return found


# Read the header of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), without its tensors.
#
# This is our own reader because the `gguf` package is only installed for training, and maps the whole file.

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


def read_gguf_architecture(path: Path) -> Architecture:
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
            yield reader.read_header(), reader
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}") from error
    except MetadataError as error:
        raise MetadataError(f"{path}: {error}") from error


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
        values = {self._read_key(): self._read_value(self._read_number("<I")) for _ in range(pairs)}
        if values.get("split.count", 1) != 1:
            # The size of one part tells nothing about the others.
            raise MetadataError("it is one of several parts; merge them with `llama-gguf-split --merge`")
        return values

    def read_tensor_names(self) -> Iterator[str]:
        """Read the names of the tensors after the header, and skip their dimensions, types and offsets."""
        for _ in range(self._tensors):
            yield self._read_key()
            self._skip(8 * self._read_number("<I") + 12)

    def _read_key(self) -> str:
        return self._take(self._read_count(MAX_KEY_BYTES, "bytes of a key")).decode("utf-8", "replace")

    def _read_value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._take(self._read_count(MAX_TEXT_BYTES, "bytes of text")).decode("utf-8", "replace")
        if kind == ARRAY:
            array_kind = self._read_number("<I")
            length = self._read_count(MAX_ELEMENTS, "elements")
            if array_kind == TEXT:
                for _ in range(length):
                    self._skip(self._read_count(MAX_TEXT_BYTES, "bytes of text"))
                return length
            if array_kind not in NUMBERS:
                raise MetadataError(f"an array has elements of the unsupported type {array_kind}")
            if length > MAX_KEPT:
                self._skip(length * struct.calcsize(NUMBERS[array_kind]))
                return length
            return [self._read_number(NUMBERS[array_kind]) for _ in range(length)]
        if kind not in NUMBERS:
            raise MetadataError(f"a value has the unknown type {kind}")
        return self._read_number(NUMBERS[kind])

    def _read_count(self, most: int, what: str) -> int:
        found: int = self._read_number("<Q")
        if found > most:
            raise MetadataError(f"the file claims {found} {what}; at most {most} are allowed")
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


# Read a folder in the form of the Hugging Face hub: `config.json`, and the headers of its safetensors files.
#
# A header is its length in eight bytes and JSON (https://github.com/huggingface/safetensors#format).

LONGEST_HEADER = 100_000_000
"""The format's own limit in bytes."""
LONGEST_CONFIG = 1 << 20
TIED = "lm_head.weight"
"""With tied embeddings, the tensor that old checkpoints hold a second time and servers do not."""


def read_huggingface_architecture(folder: Path) -> Architecture:
    """Read the architecture of the folder's model.

    Raises:
        MetadataError: a file is missing or broken, or lacks a field.
    """
    # Read `config.json`, with the text part of a multimodal model on top level.
    path = folder / "config.json"
    found = _parse_object(path, _read(path, 0, LONGEST_CONFIG))
    text = found.get("text_config")
    config = {**found, **text} if isinstance(text, dict) else found
    heads = read_count(config, "num_attention_heads")
    embedding = read_count(config, "hidden_size")
    tied = bool(config.get("tie_word_embeddings"))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise MetadataError(f"{folder} holds no *.safetensors")
    sizes = {name: size for file in files for name, size in _read_tensor_sizes(file).items()}
    if tied and len(sizes) > 1:
        sizes.pop(TIED, None)
    return Architecture(
        weights_bytes=sum(sizes.values()),
        layers=read_count(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=read_count(config, "num_key_value_heads", heads),
        head_dim=read_count(config, "head_dim", embedding // heads or 1),
        embedding=embedding,
        vocabulary=read_count(config, "vocab_size"),
        trained_context=read_count(config, "max_position_embeddings"),
        name=str(config.get("model_type", "")),
    )


def _read_tensor_sizes(path: Path) -> dict[str, int]:
    (length,) = struct.unpack("<Q", _read(path, 0, 8).ljust(8, b"\0"))
    if not 0 < length <= LONGEST_HEADER:
        raise MetadataError(f"{path}: the header claims {length} bytes, at most {LONGEST_HEADER} are allowed")
    header = _parse_object(path, _read(path, 8, length))
    header.pop("__metadata__", None)
    try:
        return {name: _size(*tensor["data_offsets"]) for name, tensor in header.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"{path}: a tensor lacks valid `data_offsets`") from error


def _size(begin: int, end: int) -> int:
    if not 0 <= begin <= end:
        raise ValueError(begin)
    return end - begin


def _read(path: Path, start: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(most)
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}") from error


def _parse_object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataError(f"{path} is not a JSON object: {error}") from error


# Read the architecture from Ollama's `/api/show`: the keys of the GGUF header without long arrays.

EMBEDDINGS = "token_embd.weight"
"""The tensor with one row per token, which tells the vocabulary, since no key does."""


def parse_architecture(shown: Mapping[str, Any], size: int) -> Architecture:
    """Parse the answer of `/api/show`; `size` is the model's bytes as `/api/tags` lists them.

    Raises:
        MetadataError: a key is missing or malformed.
    """
    info, tensors = shown.get("model_info"), shown.get("tensors")
    values = info if isinstance(info, Mapping) else {}
    tokens = values.get(TOKENS)
    vocabulary = len(tokens) if isinstance(tokens, list) and tokens else None
    for tensor in tensors if isinstance(tensors, list) else ():
        if isinstance(tensor, Mapping) and tensor.get("name") == EMBEDDINGS and isinstance(tensor.get("shape"), list):
            vocabulary = max((size for size in tensor["shape"] if isinstance(size, int)), default=None)
            break
    return architecture_from_keys(values, weights_bytes=size, vocabulary=vocabulary)


def read_architecture(path: Path) -> Architecture:
    """Read the architecture of the model at `path`.

    Raises:
        MetadataError: it cannot be read; the message names the file.
    """
    return read_huggingface_architecture(path) if path.is_dir() else read_gguf_architecture(path)
