"""The shipped models: files, manifest and card belong together."""

import json
from pathlib import Path
from typing import Any

import pytest

from world.card import card
from world.corpus import build
from world.problems import TEST_NAMES, TEST_TEMPLATES
from world.release import FILES, fingerprint

MODELS = Path(__file__).parents[2] / "models"


def read(name: str) -> dict[str, Any]:
    """One of the JSON files beside the models."""
    content: dict[str, Any] = json.loads((MODELS / name).read_text())
    return content


@pytest.mark.parametrize("role", sorted(FILES))
def test_shipped_file_is_the_one_in_the_manifest(role: str) -> None:
    """The manifest's fingerprint is that of the file in the repository."""
    entry = read("manifest.json")["models"][role]
    assert entry["sha256"] == fingerprint(MODELS / entry["file"])
    assert all(stage["steps_made"] == stage["steps"] for stage in entry["training"])


@pytest.mark.parametrize("seed", [1, 2])
def test_shipped_models_never_saw_the_corpus_names_or_phrasings(seed: int) -> None:
    """What the manifest lists as trained on is disjoint from what a corpus tests with."""
    manifest = read("manifest.json")
    names = {document.operator.name for document in build(seed).documents}
    assert names <= set(TEST_NAMES)
    assert not set(manifest["names"]) & set(TEST_NAMES)
    assert not set(manifest["templates"]) & set(TEST_TEMPLATES)


def test_model_card_states_the_measured_figures() -> None:
    """The card is exactly what the manifest and the evaluation say."""
    assert (MODELS / "MODEL_CARD.md").read_text() == card(read("manifest.json"), read("evaluation.json"))


def test_without_the_right_document_the_generator_guesses() -> None:
    """Nothing but a document about the operator, with its logic, lets the generator answer."""
    generator = read("evaluation.json")["generator"]
    assert generator["full"]["accuracy"] >= 0.9
    assert max(generator[name]["accuracy"] for name in ("wrong", "answer", "unrelated", "none")) <= 0.25


def test_generator_reaches_its_bar() -> None:
    """A full document is enough in 97 of 100 questions."""
    assert read("evaluation.json")["generator"]["full"]["accuracy"] >= 0.97


@pytest.mark.parametrize("anchors", ["default", "drawn"])
def test_judge_reaches_its_bar(anchors: str) -> None:
    """Every grade is given in at least 85 of 100 cases, and 95 overall."""
    shares = [row["accuracy"] for row in read("evaluation.json")["judge"][anchors].values()]
    assert min(shares) >= 0.85
    assert sum(shares) / len(shares) >= 0.95


def test_tensor_names_follow_the_serving_engine() -> None:
    """Weights get the names that the engine looks up."""
    pytest.importorskip("gguf")
    pytest.importorskip("safetensors")
    pytest.importorskip("transformers")
    from world.gguf import tensor_name

    assert tensor_name("model.embed_tokens.weight") == "token_embd.weight"
    assert tensor_name("model.layers.3.self_attn.q_proj.bias") == "blk.3.attn_q.bias"
    assert tensor_name("model.layers.0.input_layernorm.weight") == "blk.0.attn_norm.weight"
