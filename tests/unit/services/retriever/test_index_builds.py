"""Indexes on disk: signatures, all-or-nothing writes, and refusals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.retriever import builds, index
from services.retriever.builds import make_indexed_text
from services.retriever.index import Backend, Bm25, Faiss, SearchIndex
from shared import canonical
from shared.errors import Invalid, Unavailable
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, HashedWords

BACKENDS: list[Backend[SearchIndex]] = [Bm25(), Faiss(HashedWords())]
CORPUS = "ab" * 32


class OtherWords(HashedWords):
    signature = "other-words"


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.kind)
def backend(request: pytest.FixtureRequest) -> Backend[SearchIndex]:
    chosen: Backend[SearchIndex] = request.param
    return chosen


def write(root: Path, backend: Backend[SearchIndex], corpus: str = CORPUS) -> tuple[Path, dict[str, Any], bytes]:
    recipe = builds.make_recipe(backend, corpus)
    folder, file_hash = index.write_index(root, recipe, backend.build([DOCUMENTS]))
    return folder, recipe, file_hash


def test_the_folder_is_named_by_the_signature(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    assert folder == tmp_path / canonical.digest(recipe).hex()
    manifest = index.verify(folder, recipe, file_hash)
    assert manifest.signature == folder.name
    assert manifest.documents == len(DOCUMENTS)
    assert set(manifest.files) == {file.name for file in folder.iterdir()} - {index.MANIFEST}


def test_what_was_written_is_searched(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, _, _ = write(tmp_path, backend)
    assert backend.load(folder).search(QUESTIONS, 4) == backend.build([DOCUMENTS]).search(QUESTIONS, 4)


def test_writing_is_repeatable(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    first = write(tmp_path, backend)
    assert write(tmp_path, backend) == first
    assert list(tmp_path.iterdir()) == [first[0]]


def test_recipe_names_everything_that_matters() -> None:
    sparse, dense = (builds.make_recipe(backend, CORPUS) for backend in BACKENDS)
    assert sparse | {"backend": ""} == {
        "kind": "sparse",
        "version": builds.VERSION,
        "text": "problem \\n text",
        "corpus": CORPUS,
        "backend": "",
        "method": "lucene",
        "k1": 1.2,
        "b": 0.75,
        "tokens": 1,
    }
    assert sparse["backend"].startswith("bm25s 0.")
    assert (dense["embedder"], dense["dimension"]) == ("hashed-words", 64)


def test_another_embedder_or_corpus_is_another_signature() -> None:
    recipes = [
        builds.make_recipe(Faiss(HashedWords()), CORPUS),
        builds.make_recipe(Faiss(OtherWords()), CORPUS),
        builds.make_recipe(Faiss(HashedWords()), "cd" * 32),
        builds.make_recipe(Bm25(), CORPUS),
    ]
    assert len({canonical.digest(recipe) for recipe in recipes}) == len(recipes)


def test_an_index_of_another_embedder_is_refused(tmp_path: Path) -> None:
    folder, _, file_hash = write(tmp_path, BACKENDS[1])
    with pytest.raises(Unavailable, match=r"built with another embedder \(hashed-words, now other-words\)") as caught:
        index.verify(folder, builds.make_recipe(Faiss(OtherWords()), CORPUS), file_hash)
    assert caught.value.hint == "Build the corpus's indexes again: `mathrag corpus index NAME`"


def test_what_differs_is_named_with_both_values(tmp_path: Path) -> None:
    folder, recipe, file_hash = write(tmp_path, Bm25())
    other = {key: value for key, value in recipe.items() if key != "tokens"} | {"k1": 0.9, "corpus": "cd" * 32}
    said = r"another corpus \(abababababab…, now cdcdcdcdcdcd…\), k1 \(1.2, now 0.9\), tokens \(1, now none\)"
    with pytest.raises(Unavailable, match=said):
        index.verify(folder, other, file_hash)


def test_every_changed_file_is_refused(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    for file in folder.iterdir():
        sound = file.read_bytes()
        file.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
        with pytest.raises(Unavailable, match=file.name):
            index.verify(folder, recipe, file_hash)
        file.unlink()
        with pytest.raises(Unavailable, match=rf"{file.name} cannot be read"):
            index.verify(folder, recipe, file_hash)
        file.write_bytes(sound)
    index.verify(folder, recipe, file_hash)


def test_a_manifest_that_was_not_registered_is_refused(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, _ = write(tmp_path, backend)
    with pytest.raises(Unavailable, match="not the one that was registered"):
        index.verify(folder, recipe, b"\0" * 32)


class Interrupted:
    documents: Sequence[str] = ()

    def search(self, questions: Sequence[str], k: int) -> list[list[Any]]:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("no space left")


def test_a_failed_write_leaves_nothing_and_spares_the_old(tmp_path: Path, backend: Backend[SearchIndex]) -> None:
    folder, recipe, file_hash = write(tmp_path, backend)
    with pytest.raises(Unavailable, match="no space left"):
        index.write_index(tmp_path, recipe, Interrupted())
    assert list(tmp_path.iterdir()) == [folder]
    index.verify(folder, recipe, file_hash)


def test_hashes_survive_as_bytes(tmp_path: Path) -> None:
    documents = [document for document, _ in DOCUMENTS]
    index.write_hashes(tmp_path, documents)
    assert (tmp_path / index.HASHES_FILE).stat().st_size == 32 * len(documents)
    assert index.read(tmp_path) == documents


def test_order_is_ascending_and_nothing_is_refused() -> None:
    assert index.sort_positions(["b", "a", "c"]) == [1, 0, 2]
    with pytest.raises(Invalid, match="no documents"):
        index.sort_positions([])


def test_indexed_text() -> None:
    assert make_indexed_text("p", "t") == "p\nt"
    assert make_indexed_text("", "t") == "t"
