"""What the retriever tells the database of its reranker, and whom it answers."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import ProgrammingError

from services.retriever import searches
from services.retriever.searches import PinnedReranker, RerankQuestion, identify_reranker
from shared.models.embedding import ModelFailed
from shared.replies import Failure, FailureKind, Scored
from shared.runtime.pins import NO_RERANKER
from shared.settings import Reranker
from tests.doubles import bert_file

pytestmark = pytest.mark.anyio


class Lengths:
    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        if "" in documents:
            raise ModelFailed(FailureKind.CONTEXT_EXCEEDED, "too short")
        return [1 / len(document) for document in documents]


def asked(model: str, *documents: str) -> RerankQuestion:
    return RerankQuestion(model=model, question="q", documents=documents)


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = bert_file.write(tmp_path / "a.gguf", head=True)
    found = identify_reranker(Reranker(kind="gguf", path=path))
    assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.version
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    assert identify_reranker(Reranker(kind="gguf", path=copy, batch=3, threads=4)).hash == found.hash
    other = bert_file.write(tmp_path / "b.gguf", head=True, seed=1)
    assert identify_reranker(Reranker(kind="gguf", path=other)).hash != found.hash


def test_a_model_of_the_hub_is_known_by_name_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "version", lambda _: "6.2.0")  # the extra is not installed everywhere
    given: dict[str, Any] = {"kind": "sentence-transformers", "path": Path("/nowhere")}
    hashes = {
        identify_reranker(Reranker(**given, model=name, revision=revision)).hash
        for name in "ab"
        for revision in ("", "1")
    }
    assert len(hashes) == 4
    assert identify_reranker(Reranker(**given, model="a")).digest is None


def test_none_is_one_too() -> None:
    assert identify_reranker(Reranker()) == NO_RERANKER


async def test_scores_go_to_whom_they_belong() -> None:
    mine = identify_reranker(Reranker(kind="endpoint", url="http://server", revision="1"))
    made = PinnedReranker(mine, Lengths())
    assert await made.answer(asked(mine.hash.hex(), "a", "bbbb")) == Scored(scores=(1.0, 0.25))
    for other, model in ((made, "0" * 64), (PinnedReranker(NO_RERANKER, None), mine.hash.hex())):
        refused = await other.answer(asked(model, "a"))
        assert isinstance(refused, Failure)
        assert refused.kind is FailureKind.BACKEND_ERROR


async def test_a_failure_of_the_model_keeps_its_kind() -> None:
    mine = identify_reranker(Reranker(kind="endpoint", url="http://server"))
    refused = await PinnedReranker(mine, Lengths()).answer(asked(mine.hash.hex(), ""))
    assert refused == Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too short")


class Broken:
    @asynccontextmanager
    async def transaction(self) -> Any:
        raise ProgrammingError("INSERT", {}, Exception("no table"))
        yield


async def test_a_database_that_refuses_stops_no_searches(caplog: pytest.LogCaptureFixture) -> None:
    database: Any = Broken()
    with caplog.at_level(logging.ERROR):
        await PinnedReranker(NO_RERANKER, None).register(database)
    assert "could not be registered" in caplog.text
