"""What drivers tell of a model's shape; that they cannot is no reason not to serve it."""

import json
import logging
import struct
from pathlib import Path

import pytest

from services.guard.drivers.ollama import OllamaDriver
from services.guard.drivers.process import ProcessDriver
from shared.settings import REPOSITORY, Device, Model
from tests.doubles.ollama_models import SHOWN, SIZE
from tests.doubles.ollama_server import ollama_server

pytestmark = pytest.mark.anyio

TAG = "qwen2.5:7b"


def process(path: Path) -> ProcessDriver:
    return ProcessDriver("m", Model(driver="process", path=path), Device())


async def test_a_file_tells_by_its_header() -> None:
    found = await process(REPOSITORY / "models" / "world-judge-f16.gguf").architecture()
    assert found is not None
    assert (found.layers, found.vocabulary) == (4, 1024)


async def test_a_folder_tells_by_its_config(tmp_path: Path) -> None:
    config = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    tensors = json.dumps({"w": {"data_offsets": [0, 80]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(tensors)) + tensors)
    found = await process(tmp_path).architecture()
    assert found is not None
    assert (found.layers, found.head_dim, found.weights_bytes) == (2, 16, 80)


async def test_a_file_that_tells_nothing_is_served_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF weights")
    with caplog.at_level(logging.WARNING):
        assert await process(tmp_path / "model.gguf").architecture() is None
    assert "cannot be estimated" in caplog.text
    assert "GGUF version" in caplog.text


async def test_ollama_tells_what_it_shows(caplog: pytest.LogCaptureFixture) -> None:
    async with ollama_server(TAG) as (double, http):
        driver, absent = (
            OllamaDriver("m", Model(driver="ollama", tag=tag, url=http.url), Device(id="gpu:0"), frozenset({TAG}))
            for tag in (TAG, "absent:1b")
        )
        assert await driver.architecture() is None
        double.shown = SHOWN
        found = await driver.architecture()
        assert found is not None
        assert (found.layers, found.kv_heads, found.vocabulary, found.weights_bytes) == (28, 4, 152_064, SIZE)
        assert await absent.architecture() is None
    assert "HTTP 404" in caplog.text
