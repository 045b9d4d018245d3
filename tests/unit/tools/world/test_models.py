"""The shipped models, and the judge that knows the truth."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mathrag_gate.demo.world import GRADES, TEST_NAMES, TEST_TEMPLATES, Document, GeneratedCorpus, build, write
from services.guard.drivers.remote import RemoteDriver
from shared.calls import Decoding
from shared.models.chat import ChatFailed
from shared.rag.prompts import parse_rating, render, template
from shared.replies import Document as Served
from shared.replies import Rated
from shared.settings import REPOSITORY, Device, Model
from tests.doubles.asgi_server import serve_app
from tools.world.card import card
from tools.world.oracle import create_app, rate, truth, write_document
from tools.world.relations import TEST_PHRASINGS
from tools.world.release import SHIPPED, fingerprint, manifest

pytestmark = pytest.mark.anyio

# The shipped models: files, manifest and card belong together.

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


def test_the_label_judge_tells_useful_documents_from_useless_ones() -> None:
    rated = read("evaluation.json")["labels"]["relevance world en"]
    assert {sort: row["label"] for sort, row in rated.items()}["unrelated"] == 1
    assert min(row["accuracy"] for row in rated.values()) >= 0.8


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


# The judge that knows the truth, asked the way the guard asks a remote model.

DECODING = Decoding(temperature=0.1, max_tokens=10)
DOCUMENTS = [f"Problem: {number}\nSolution: {number}" for number in range(4000)]


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return build(101)


@pytest.fixture
async def url(corpus: GeneratedCorpus, tmp_path: Path) -> AsyncIterator[str]:
    write(corpus, tmp_path / "world-101")
    async with serve_app(create_app(truth(tmp_path))) as base:
        yield f"{base}/v1"


async def asked(url: str, model: str, *prompts: str) -> list[str]:
    server = await RemoteDriver(model, Model(driver="remote", url=url), Device()).start()
    try:
        return [(await server.complete(prompt, DECODING, 0)).text for prompt in prompts]
    finally:
        await server.stop()


def prompt(document: Document) -> str:
    return render(template("reasoning-quality"), {"document": Served(problem=document.problem, text=document.text)})


async def test_without_noise_every_document_gets_its_true_grade(url: str, corpus: GeneratedCorpus) -> None:
    documents = corpus.documents[:25]
    texts = await asked(url, "oracle-0", *map(prompt, documents))
    for document, text in zip(documents, texts, strict=True):
        rated = parse_rating(text, truncated=False)
        assert isinstance(rated, Rated)
        assert rated.rating == GRADES[document.kind]


async def test_its_ratings_are_pinned_so_that_jobs_may_share_them(url: str) -> None:
    found = [
        await RemoteDriver(name, Model(driver="remote", url=url), Device()).identify()
        for name in ("oracle-0", "oracle-10")
    ]
    assert all(identity.digest for identity in found)
    assert found[0].hash != found[1].hash


@pytest.mark.parametrize("model", ["oracle-", "oracle-200", "judge"])
async def test_who_is_no_oracle_gets_no_rating(url: str, corpus: GeneratedCorpus, model: str) -> None:
    with pytest.raises(ChatFailed, match="unknown model or document"):
        await asked(url, model, prompt(corpus.documents[0]))


async def test_a_document_that_stands_in_no_corpus_gets_no_rating(url: str) -> None:
    strange = render(template("reasoning-quality"), {"document": Served(problem="What is 1 plus 1?", text="2.")})
    with pytest.raises(ChatFailed, match="a document of the corpora"):
        await asked(url, "oracle-0", strange)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_wrong_ratings_is_the_noise(noise: float) -> None:
    wrong = sum(rate(document, 3, noise) != 3 for document in DOCUMENTS) / len(DOCUMENTS)
    assert wrong == pytest.approx(noise, abs=4 * (noise * (1 - noise) / len(DOCUMENTS)) ** 0.5)


def test_wrong_ratings_are_drawn_evenly_from_the_other_four() -> None:
    given = Counter(rate(document, 3, 1.0) for document in DOCUMENTS)
    assert set(given) == {1, 2, 4, 5}
    assert min(given.values()) > 0.2 * len(DOCUMENTS)


def test_more_noise_keeps_the_errors_that_less_noise_makes() -> None:
    few = {document for document in DOCUMENTS if rate(document, 2, 0.1) != 2}
    assert all(rate(document, 2, 0.1) == rate(document, 2, 0.4) != 2 for document in few)


def test_the_truth_is_what_all_corpora_of_a_folder_say(tmp_path: Path) -> None:
    for seed in (101, 102):
        write(build(seed), tmp_path / f"world-{seed}")
    grades = truth(tmp_path)
    for document in [*build(101).documents, *build(102).documents]:
        assert grades[write_document(document.problem, document.text)] == GRADES[document.kind]
