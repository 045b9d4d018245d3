"""A double of the servers that embed and rerank: llama.cpp, vLLM, text-embeddings-inference, Ollama.

It proves that we speak their protocols and refuse what cannot be used, and nothing about a real server.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.chat_server import Reply, Seen, as_json
from tests.doubles.misbehaviour import TRANSPORT, Misbehaviour
from tests.unit.retrieval import HashedWords

WRONG = ("few", "twice", "nan", "infinite", "another_dimension", "ragged", "too_long", "echo", "unreadable")
"""Besides what any server can do wrong."""
TOO_LONG = {
    "/v1/embeddings": ({"error": {"code": 500, "message": "input (900 tokens) is too large to process."}}, 500),
    "/v1/rerank": ({"error": {"message": "This model's maximum context length is 512 tokens."}}, 400),
    "/api/embed": ({"error": "the input length exceeds the context length"}, 400),
    "/rerank": ({"error": "`inputs` must have less than 512 tokens. Given: 900", "error_type": "Validation"}, 413),
}
"""How llama.cpp, vLLM, Ollama and text-embeddings-inference refuse a text that does not fit."""
LENGTH = 3.0
"""Of its vectors: ours have 1."""


@dataclass
class RetrievalServer:
    """Answers with the vectors of `HashedWords`, and with logits by document."""

    logits: dict[str, float] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """Ollama's pulled models."""
    wrong: Misbehaviour = field(default_factory=lambda: Misbehaviour((*TRANSPORT, *WRONG)))
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Everything that was posted."""

    holds: int | None = None
    """Words of a text at most; None: any number."""

    def tell(self, how: str, times: int | None = None) -> None:
        """Misbehave in this way, `times` times."""
        assert how in self.wrong.known
        self.wrong.left[how] = times

    def respond(self, seen: Seen) -> Reply:
        """Answer one request."""
        if (seen.method, seen.path) == ("GET", "/api/tags"):
            return as_json({"models": [{"name": name, "digest": digest} for name, digest in self.digests.items()]})
        self.bodies.append(seen.json)
        if self.wrong.now("too_long") or self._is_too_long(seen.json):
            return as_json(*TOO_LONG[seen.path])
        if self.wrong.now("echo"):
            return as_json({"error": f"no such key: {seen.headers['authorization']}"}, 400)
        if self.wrong.now("unreadable"):
            return Reply(body=b"<html>")
        return self.wrong.spoilt(self._answer(seen.path, seen.json))

    def _is_too_long(self, body: dict[str, Any]) -> bool:
        words = (len(text.split()) for text in body.get("input", ()))
        return self.holds is not None and max(words, default=0) > self.holds

    def _answer(self, path: str, body: dict[str, Any]) -> Reply:
        match path:
            case "/v1/embeddings":
                numbered = [{"index": at, "embedding": each} for at, each in enumerate(self._vectors(body["input"]))]
                if self.wrong.now("twice"):
                    numbered[-1]["index"] = 0
                return _json({"object": "list", "data": numbered[::-1]})
            case "/api/embed":
                return _json({"model": body["model"], "embeddings": self._vectors(body["input"])})
            case "/v1/rerank":
                results = [{"index": at, "relevance_score": score} for at, score in self._rank(body["documents"])]
                return _json({"object": "list", "results": results})
            case "/rerank":
                return _json([{"index": at, "score": score} for at, score in self._rank(body["texts"])])
        return as_json({"error": "no such route"}, 404)

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = (HashedWords().embed_documents(texts) * LENGTH).tolist()
        if self.wrong.now("few"):
            return vectors[1:]
        if self.wrong.now("another_dimension"):
            return [vector[1:] for vector in vectors]
        if self.wrong.now("ragged"):
            vectors[0] = vectors[0][1:]
        if self.wrong.now("nan"):
            vectors[0][0] = float("nan")
        if self.wrong.now("infinite"):
            vectors[0][0] = 1e999
        return vectors

    def _rank(self, documents: Sequence[str]) -> list[tuple[int, float]]:
        """Sort documents best first, as these servers answer."""
        scores = [self.logits[document] for document in documents]
        if self.wrong.now("nan"):
            scores[0] = float("nan")
        ranked = sorted(enumerate(scores), key=lambda pair: -pair[1])
        if self.wrong.now("twice"):
            ranked[-1] = ranked[0]
        return ranked[1:] if self.wrong.now("few") else ranked


def _json(value: object) -> Reply:
    """With `NaN` and `Infinity` where Python's writer puts them, as servers in Python send them."""
    return Reply(body=json.dumps(value).encode(), headers={"Content-Type": "application/json"})
