"""Model files in Hugging Face's layout, and adapters that are trained on them."""

import json
from pathlib import Path

import pytest

from shared.settings import REPOSITORY
from tools.world.release import SHIPPED

for package in ("torch", "transformers", "gguf"):
    pytest.importorskip(package)

# Transformers warns of its own coming changes.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

RULES = REPOSITORY / "models" / SHIPPED["rules"]


def test_a_converted_model_is_read_by_transformers_and_gives_the_same_file(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tools.world.models import convert, export

    convert(RULES, tmp_path / "folder")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "folder").num_parameters() > 1_000_000
    assert AutoTokenizer.from_pretrained(tmp_path / "folder").eos_token == "<|im_end|>"
    export(tmp_path / "folder", tmp_path / "again.gguf", "rules-generator")
    assert (tmp_path / "again.gguf").read_bytes() == RULES.read_bytes()


def test_lora_learns_replies_and_writes_both_layouts(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from tools.world.lora import Options, run

    file = tmp_path / "messages.jsonl"
    line = {"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "it"}]}
    file.write_text(f"{json.dumps(line)}\n" * 4)
    options = Options(epochs=6, rate=3e-3, batch=2)
    record = run(RULES, {"data": file, "dev": file, "test": None}, tmp_path / "out", options)
    assert record["dev_loss"]["6"] < record["dev_loss"]["0"]
    assert (tmp_path / "out" / "merged" / "config.json").exists()
    assert (tmp_path / "out" / "adapter" / "adapter_config.json").exists()
    assert (tmp_path / "out" / "merged.gguf").stat().st_size == RULES.stat().st_size


def test_prompts_are_not_in_the_loss() -> None:
    pytest.importorskip("peft")
    from tools.world.lora import IGNORED, encode, load_base, pad
    from tools.world.samples import Exchange

    _, tokenizer = load_base(RULES)
    rows = encode(tokenizer, [Exchange("A long question about Ann.", "Bo")], 100)
    labels = pad(rows, 0, "cpu")["labels"][0]
    assert tokenizer.decode(labels[labels != IGNORED]) == "Bo<|im_end|>"
    assert encode(tokenizer, [Exchange("A long question about Ann.", "Bo")], 5) == []
