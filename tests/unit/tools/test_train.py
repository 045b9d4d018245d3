"""What needs the extra `train`: tuned embeddings, converted models, adapters."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.models import servers
from shared.settings import REPOSITORY, Embeddings
from tests.unit.tools import toy
from tools.embeddings import __main__ as command
from tools.embeddings.tuning import TrainingBatch, compute_contrastive_loss
from tools.world.release import SHIPPED

# Tuning a model of sentence-transformers: a tiny one with random weights; skipped without the extra `train`.

pytest.importorskip("sentence_transformers", reason="needs the extra `train`")
torch = pytest.importorskip("torch", reason="needs the extra `train`")
transformers = pytest.importorskip("transformers", reason="needs the extra `train`")
TEXTS = ["p1 met p8", "p3 sued p22"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    words = dict.fromkeys(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *toy.WORDS))
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path / "model")
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def tuned(model: Path, tmp_path: Path) -> Path:
    pairs, out = toy.pairs(tmp_path / "pairs.jsonl"), tmp_path / "tuned"
    options = ["--kind", "sentence-transformers", "--batch", "8", "--rate", "0.003", "--dev", "0.3", "--epochs", "8"]
    command.main([str(pairs), "--out", str(out), "--model", str(model), *options])
    return out


def state(folder: Path, side: str = "") -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    made = SentenceTransformer(str(folder), device="cpu")
    first: Any = made[0].sub_modules[side][0] if side else made[0]
    return dict(first.named_parameters())


def test_the_query_side_alone_changes(model: Path, tuned: Path) -> None:
    before, documents, queries = state(model), state(tuned, "document"), state(tuned, "query")
    assert before.keys() == documents.keys() == queries.keys()
    assert all(torch.equal(documents[name], before[name]) for name in before)
    assert sum(not torch.equal(queries[name], before[name]) for name in before) > len(before) / 2


def test_the_service_reads_questions_by_the_tuned_side(model: Path, tuned: Path) -> None:
    with (
        servers.open_embedder(Embeddings(kind="sentence-transformers", path=model)) as base,
        servers.open_embedder(Embeddings(kind="sentence-transformers", path=tuned)) as two,
    ):
        assert two.signature != base.signature
        np.testing.assert_array_equal(two.embed_documents(TEXTS), base.embed_documents(TEXTS))
        assert np.abs(two.embed_queries(TEXTS) - base.embed_queries(TEXTS)).max() > 1e-3
        np.testing.assert_array_equal(base.embed_queries(TEXTS), base.embed_documents(TEXTS))


def test_the_loss_is_the_one_of_numpy() -> None:
    from tools.embeddings import sentence

    rng = np.random.default_rng(0)
    vectors, documents = (rng.standard_normal((count, 8)) for count in (4, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    positives, oracle = np.array([0, 3, 3, 5]), rng.random((4, 6)) < 0.3
    oracle[np.arange(4), positives] = True
    tensor = torch.tensor(vectors, requires_grad=True)
    loss = sentence.compute_contrastive_loss(
        tensor, torch.from_numpy(documents), TrainingBatch([], positives, positives, oracle), 0.1
    )
    loss.backward()
    losses, gradients = compute_contrastive_loss(vectors, documents, positives, oracle, 0.1)
    across = gradients - (gradients * vectors).sum(axis=1, keepdims=True) * vectors
    np.testing.assert_allclose(float(loss.detach()), losses.mean())
    np.testing.assert_allclose(tensor.grad.numpy(), across / len(vectors), atol=1e-9)


# Model files in Hugging Face's layout, and adapters that are trained on them.

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
