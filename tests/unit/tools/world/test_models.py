"""The shipped models: files, manifest and card belong together."""

import json
from pathlib import Path
from typing import Any

import pytest

from mathrag.demo.world import TEST_NAMES, TEST_TEMPLATES, build
from shared.settings import REPOSITORY
from tools.world.card import card
from tools.world.relations import TEST_PHRASINGS
from tools.world.release import SHIPPED, fingerprint, manifest

pytestmark = pytest.mark.anyio

MODELS = REPOSITORY / "models"


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MODELS / name).read_text())
    return content


@pytest.mark.parametrize("role", sorted(SHIPPED))
def test_shipped_file_is_the_one_in_the_manifest(role: str) -> None:
    entry = read("manifest.json")["models"][role]
    assert entry["sha256"] == fingerprint(MODELS / entry["file"])
    assert all(stage["steps_made"] == stage["steps"] for stage in entry["training"])


@pytest.mark.parametrize("seed", [1, 2])
def test_shipped_models_never_saw_the_corpus_names_or_phrasings(seed: int) -> None:
    manifest = read("manifest.json")
    names = {document.operator.name for document in build(seed).documents}
    assert names <= set(TEST_NAMES)
    assert not set(manifest["names"]) & set(TEST_NAMES)
    assert not set(manifest["templates"]) & set(TEST_TEMPLATES)
    assert not set(manifest["phrasings"]) & {*TEST_PHRASINGS.objects, *TEST_PHRASINGS.subjects}


def test_model_card_states_the_measured_figures() -> None:
    assert (MODELS / "MODEL_CARD.md").read_text() == card(read("manifest.json"), read("evaluation.json"))


def test_without_the_right_document_the_generator_guesses() -> None:
    generator = read("evaluation.json")["generator"]
    assert generator["full"]["accuracy"] >= 0.9
    assert max(generator[name]["accuracy"] for name in ("wrong", "answer", "unrelated", "none")) <= 0.25


def test_generator_reaches_its_bar() -> None:
    assert read("evaluation.json")["generator"]["full"]["accuracy"] >= 0.97


@pytest.mark.parametrize("anchors", ["default", "drawn"])
def test_judge_reaches_its_bar(anchors: str) -> None:
    shares = [row["accuracy"] for row in read("evaluation.json")["judge"][anchors].values()]
    assert min(shares) >= 0.85
    assert sum(shares) / len(shares) >= 0.95


def trained(folder: Path, **record: Any) -> Path:
    folder.mkdir()
    (folder / "training.json").write_text(json.dumps(record))
    return folder


def test_a_stage_that_went_on_from_the_shipped_file_is_added_to_its_stages(tmp_path: Path) -> None:
    file = tmp_path / SHIPPED["judge"]
    file.write_bytes(b"weights")
    shipped = {"judge": {"sha256": "ab", "training": [{"steps": 1}]}, "generator": {"sha256": "cd", "training": []}}
    after = manifest({"judge": [trained(tmp_path / "on", steps=2, init="ab")]}, tmp_path, shipped)["models"]
    assert after["judge"] == {
        "file": file.name,
        "sha256": fingerprint(file),
        "training": [{"steps": 1}, {"steps": 2, "init": "ab"}],
    }
    assert after["generator"] == shipped["generator"]


def test_stages_from_elsewhere_replace_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / SHIPPED["judge"]).write_bytes(b"weights")
    stages = [trained(tmp_path / "first", steps=3, init=""), trained(tmp_path / "second", steps=4)]
    shipped = {"judge": {"sha256": "ab", "training": [{"steps": 1}]}}
    after = manifest({"judge": stages}, tmp_path, shipped)["models"]
    assert [stage["steps"] for stage in after["judge"]["training"]] == [3, 4]


def test_judge_rates_relevance() -> None:
    rows = read("evaluation.json")["skills"]["relevance"]
    assert rows["1"]["accuracy"] >= 0.6
    assert sum(row["accuracy"] for row in rows.values()) / len(rows) >= 0.85


@pytest.mark.parametrize("skill", ["rewrite", "rewrite-again", "decompose", "keywords", "hyde-solution"])
def test_judge_writes_for_a_search(skill: str) -> None:
    assert read("evaluation.json")["skills"]["texts"][skill]["accuracy"] >= 0.65


@pytest.mark.parametrize("rubric", ["reasoning-quality", "relevance"])
def test_judge_keeps_the_format_outside_its_world(rubric: str) -> None:
    assert read("evaluation.json")["skills"]["foreign ratings"][rubric]["accuracy"] >= 0.98


def test_a_model_file_that_is_read_and_written_again_is_the_same_file(tmp_path: Path) -> None:
    for package in ("gguf", "torch", "transformers"):
        pytest.importorskip(package)
    from tools.world.models import export
    from tools.world.train import RECIPES, begin

    file = MODELS / SHIPPED["judge"]
    model, tokenizer = begin(RECIPES["skills"], file)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    export(tmp_path, tmp_path / "again.gguf", "world-judge")
    assert (tmp_path / "again.gguf").read_bytes() == file.read_bytes()


def test_tensor_names_follow_the_serving_engine() -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("safetensors")
    pytest.importorskip("transformers")
    from tools.world.models import tensor_name

    assert tensor_name("model.embed_tokens.weight") == "token_embd.weight"
    assert tensor_name("model.layers.3.self_attn.q_proj.bias") == "blk.3.attn_q.bias"
    assert tensor_name("model.layers.0.input_layernorm.weight") == "blk.0.attn_norm.weight"
