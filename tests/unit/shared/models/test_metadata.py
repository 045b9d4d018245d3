"""Model files: what they say of themselves, and what they are by their bytes."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.models import files, metadata
from shared.models.files import WeightsMissing
from shared.models.metadata import MetadataError
from shared.settings import REPOSITORY
from shared.shapes import Architecture
from tests.doubles.ollama_server import SHOWN
from tests.unit.cases import named

# Readers of model metadata: the shipped files, headers made by hand, and what somebody hostile would send.

QWEN: dict[str, Any] = {
    "general.architecture": "qwen2", "qwen2.block_count": 28, "qwen2.attention.head_count": 28,
    "qwen2.attention.head_count_kv": 4, "qwen2.embedding_length": 3584, "qwen2.context_length": 32_768,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "qwen2", "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "hidden_size": 896, "vocab_size": 151_936, "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
SHIPPED = Architecture(
    weights_bytes=0, layers=4, heads=4, kv_heads=4, head_dim=32, embedding=128, vocabulary=1024, trained_context=2048,
    name="qwen2",
)  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value: Any) -> bytes:
    match value:
        case str():
            return struct.pack("<I", 8) + text(value)
        case int():
            return struct.pack("<II", 4, value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", each) for each in value)


def header(keys: dict[str, Any], version: int = 3) -> bytes:
    pairs = b"".join(text(key) + typed(value) for key, value in keys.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(keys)) + pairs


Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return written


@pytest.mark.parametrize("role", ["judge", "generator"])
def test_the_shipped_models_tell_their_shape(role: str) -> None:
    found = metadata.read_gguf_architecture(REPOSITORY / "models" / f"world-{role}-f16.gguf")
    parameters = json.loads((REPOSITORY / "models" / "manifest.json").read_text())["models"][role]["training"][0]
    assert 2 * parameters["parameters"] < found.weights_bytes < 2.02 * parameters["parameters"]
    assert found == Architecture(**{**as_dict(SHIPPED), "weights_bytes": found.weights_bytes})


def as_dict(found: Architecture) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


def test_a_header_says_the_shape_and_what_follows_it_is_weights(write: Write) -> None:
    found = metadata.read_gguf_architecture(
        write(header({**QWEN, "tokenizer.ggml.tokens": ["a", "b", "c"]}) + bytes(1000))
    )
    assert (found.layers, found.heads, found.kv_heads, found.head_dim) == (28, 28, 4, 128)
    assert (found.vocabulary, found.trained_context, found.weights_bytes) == (3, 32_768, 1000)


def test_what_a_header_leaves_out_follows_from_the_rest(write: Write) -> None:
    keys = {name: value for name, value in QWEN.items() if not name.endswith("head_count_kv")}
    found = metadata.read_gguf_architecture(
        write(header({**keys, "qwen2.vocab_size": 9, "qwen2.attention.key_length": 64}))
    )
    assert (found.kv_heads, found.head_dim, found.vocabulary) == (28, 64, 9)


def test_heads_by_layer_count_as_the_layer_with_most(write: Write) -> None:
    keys = {**QWEN, "qwen2.vocab_size": 9, "qwen2.attention.head_count_kv": [0, 8, 4]}
    assert metadata.read_gguf_architecture(write(header(keys))).kv_heads == 8


def test_long_arrays_are_passed_over(write: Write) -> None:
    keys = {**QWEN, "tokenizer.ggml.token_type": [1] * 5000, "tokenizer.ggml.tokens": ["x"] * 5000}
    assert metadata.read_gguf_architecture(write(header(keys))).vocabulary == 5000


def test_one_part_of_several_is_refused_with_the_fix(write: Write) -> None:
    with pytest.raises(MetadataError, match="llama-gguf-split --merge"):
        metadata.read_gguf_architecture(write(header({**QWEN, "qwen2.vocab_size": 9, "split.count": 3})))


HOSTILE = {
    "not a GGUF file": b"MZ" + bytes(100),
    "the file is truncated": b"GG",
    "GGUF version 1": header(QWEN, version=1),
    "GGUF version 50331648": b"GGUF" + struct.pack(">IQQ", 3, 0, 1),
    "keys; at most 4096 are allowed": b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
    "bytes of a key; at most 65535 are allowed": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60),
    "bytes of text; at most 16777216 are allowed": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("k")
    + struct.pack("<IQ", 8, 1 << 60),
    "elements; at most 4194304 are allowed": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("k")
    + struct.pack("<IIQ", 9, 8, 1 << 60),
    "the unsupported type 9": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1),
    "unknown type 77": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77),
    "`general.architecture` is missing": header({}),
    "`qwen2.attention.head_count` must be a whole number, but is missing": header({"general.architecture": "qwen2"}),
    "`qwen2.block_count` must be a whole number, but is 0": header(
        {**QWEN, "qwen2.block_count": 0, "qwen2.vocab_size": 9}
    ),
    "`qwen2.block_count` must be a whole number, but is 'many'": header(
        {**QWEN, "qwen2.block_count": "many", "qwen2.vocab_size": 9}
    ),
    "`qwen2.vocab_size` must be a whole number, but is missing": header(QWEN),
}


def refusal(reader: Callable[[Path], Architecture], path: Path) -> str:
    try:
        reader(path)
    except MetadataError as refused:
        return str(refused)
    return "(it can be used)"


def test_a_header_that_cannot_be_used_says_why(write: Write) -> None:
    wrong = {}
    for expected, content in HOSTILE.items():
        path = write(content)
        said = named(refusal, metadata.read_gguf_architecture, path)
        if expected not in said or str(path) not in said:
            wrong[expected] = said
    assert wrong == {}


def test_an_array_beyond_the_end_is_refused(write: Write) -> None:
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 20)
    with pytest.raises(MetadataError, match="the file is truncated"):
        metadata.read_gguf_architecture(write(content))


WHOLE = header({**QWEN, "tokenizer.ggml.tokens": ["a", "b"]})


@given(st.integers(0, len(WHOLE) - 1))
def test_a_header_that_is_broken_off_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, end: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(WHOLE[:end])
    with pytest.raises(MetadataError):
        metadata.read_gguf_architecture(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="No such file"):
        metadata.read_gguf_architecture(tmp_path / "gone.gguf")


def model_folder(path: Path, config: dict[str, Any], **tensors: int) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    write_tensors(path / "model.safetensors", **tensors)
    return path


def write_tensors(path: Path, **sizes: int) -> None:
    ends = [sum(list(sizes.values())[: n + 1]) for n in range(len(sizes))]
    described = {
        name.replace("_weight", ".weight"): {"dtype": "F16", "shape": [size // 2], "data_offsets": [end - size, end]}
        for (name, size), end in zip(sizes.items(), ends, strict=True)
    }
    content = json.dumps({"__metadata__": {"format": "pt"}, **described}).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content)


def test_a_config_says_the_shape_and_tensors_the_size(tmp_path: Path) -> None:
    found = metadata.read_huggingface_architecture(model_folder(tmp_path, CONFIG, a=600, b=400))
    assert (found.layers, found.heads, found.kv_heads, found.head_dim) == (24, 14, 2, 64)
    assert (found.embedding, found.vocabulary, found.trained_context, found.name) == (896, 151_936, 32_768, "qwen2")
    assert found.weights_bytes == 1000


@pytest.mark.parametrize(("given_dim", "expected"), [(None, 64), (128, 128)])
def test_a_stated_head_dim_wins(tmp_path: Path, given_dim: int | None, expected: int) -> None:
    assert (
        metadata.read_huggingface_architecture(model_folder(tmp_path, {**CONFIG, "head_dim": given_dim}, a=1)).head_dim
        == expected
    )


def test_without_groups_every_head_has_its_keys(tmp_path: Path) -> None:
    config = {name: value for name, value in CONFIG.items() if name != "num_key_value_heads"}
    assert metadata.read_huggingface_architecture(model_folder(tmp_path, config, a=1)).kv_heads == 14


@pytest.mark.parametrize(("tied", "expected"), [(True, 900), (False, 1000)])
def test_tied_embeddings_are_held_once(tmp_path: Path, tied: bool, expected: int) -> None:
    config = {**CONFIG, "tie_word_embeddings": tied}
    assert (
        metadata.read_huggingface_architecture(model_folder(tmp_path, config, a=900, lm_head_weight=100)).weights_bytes
        == expected
    )


def test_all_parts_of_a_checkpoint_count(tmp_path: Path) -> None:
    model_folder(tmp_path, CONFIG, a=600)
    write_tensors(tmp_path / "model-00002-of-00002.safetensors", b=400)
    assert metadata.read_huggingface_architecture(tmp_path).weights_bytes == 1000


def test_of_a_model_that_sees_the_part_that_writes_counts(tmp_path: Path) -> None:
    found = metadata.read_huggingface_architecture(
        model_folder(tmp_path, {"model_type": "vl", "text_config": CONFIG}, a=1)
    )
    assert (found.layers, found.name) == (24, "qwen2")


def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    cases = [
        (b"[]", b"", "is not a JSON object"),
        (b"\xff", b"", "is not a JSON object"),
        (b"[" * 100_000, b"", "is not a JSON object"),
        (b"{}", b"", "`num_attention_heads` must be a whole number, but is missing"),
        (json.dumps({**CONFIG, "num_hidden_layers": -1}).encode(), b"\2" + bytes(7) + b"{}", "`num_hidden_layers`"),
        (json.dumps({**CONFIG, "vocab_size": True}).encode(), b"\2" + bytes(7) + b"{}", "`vocab_size`"),
        (json.dumps(CONFIG).encode(), b"", "the header claims 0 bytes"),
        (json.dumps(CONFIG).encode(), b"\xff" * 8, "the header claims 18446744073709551615 bytes"),
        (json.dumps(CONFIG).encode(), b"\x09" + bytes(7) + b'{"a": 12}', "valid `data_offsets`"),
        (json.dumps(CONFIG).encode(), b"\x1c" + bytes(7) + b'{"a":{"data_offsets":[9,1]}}', "valid `data_offsets`"),
    ]
    wrong = {}
    for config, tensors, expected in cases:
        (tmp_path / "config.json").write_bytes(config)
        (tmp_path / "model.safetensors").write_bytes(tensors)
        if expected not in (said := named(refusal, metadata.read_huggingface_architecture, tmp_path)):
            wrong[config[:80], tensors] = said
    assert wrong == {}


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(MetadataError, match=r"no \*\.safetensors"):
        metadata.read_huggingface_architecture(tmp_path)
    with pytest.raises(MetadataError, match=r"config\.json: No such file"):
        metadata.read_huggingface_architecture(tmp_path / "nowhere")


def test_ollama_shows_the_same_keys() -> None:
    found = metadata.parse_architecture(SHOWN, 4_683_087_332)
    assert (found.layers, found.heads, found.kv_heads, found.head_dim) == (28, 28, 4, 128)
    assert (found.vocabulary, found.weights_bytes, found.name) == (152_064, 4_683_087_332, "qwen2")


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({}, "`general.architecture` is missing"),
        ({"model_info": []}, "`general.architecture` is missing"),
        ({"model_info": QWEN}, "`qwen2.vocab_size` must be a whole number, but is missing"),
        (
            {"model_info": QWEN, "tensors": [{"name": "token_embd.weight", "shape": []}]},
            "`qwen2.vocab_size` must be a whole number, but is missing",
        ),
        ({"model_info": QWEN, "tensors": "none"}, "`qwen2.vocab_size` must be a whole number, but is missing"),
    ],
)
def test_a_show_that_says_too_little_is_refused(shown: dict[str, Any], said: str) -> None:
    with pytest.raises(MetadataError, match=said):
        metadata.parse_architecture(shown, 1)


def test_a_show_with_its_tokens_needs_no_tensors() -> None:
    assert metadata.parse_architecture({"model_info": {**QWEN, "tokenizer.ggml.tokens": ["a"] * 7}}, 1).vocabulary == 7


# What a model is, by its bytes.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_file_is_its_sha256(folder: Path) -> None:
    file = folder / "model.safetensors"
    assert files.digest(file) == hashlib.sha256(b"weights").hexdigest()


def test_a_folder_is_another_model_once_any_of_its_files_is_another(folder: Path) -> None:
    seen = {files.digest(folder)}
    for name, content in (("config.json", "{}"), ("model.safetensors", "weightz"), ("chat_template.jinja", "{{ x }}")):
        (folder / name).write_text(content)
        os.utime(folder / name, ns=(1, 1))
        seen.add(files.digest(folder))
    (folder / "chat_template.jinja").rename(folder / "template.jinja")
    assert len(seen | {files.digest(folder)}) == 5


def test_what_a_download_keeps_for_itself_is_no_part_of_a_model(folder: Path) -> None:
    before = files.digest(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("now")
    assert files.digest(folder) == before


def test_an_unchanged_file_is_read_once(folder: Path) -> None:
    file = folder / "model.safetensors"
    before, read = files.digest(file), files.hash_file.cache_info().misses
    assert files.digest(file) == before
    assert files.hash_file.cache_info().misses == read


def test_a_copy_that_keeps_size_and_time_is_another_file(folder: Path) -> None:
    file = folder / "model.safetensors"
    before, status = files.digest(file), file.stat()
    file.write_bytes(bytes(status.st_size))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files.digest(file) != before


@pytest.mark.parametrize("name", ["none.gguf", "empty"])
def test_nothing_is_no_model(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsMissing, match=rf"{name}.*put .* there"):
        files.digest(tmp_path / name)
