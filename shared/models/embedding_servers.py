"""Encoders on HTTP servers: any server with `/v1/embeddings`, and Ollama's own `/api/embed`."""

from collections.abc import Sequence

import msgspec

from shared.contracts.replies import FailureKind
from shared.models.endpoint import Endpoint
from shared.models.ollama import Pulled, advise_fetching, make_full_tag
from shared.models.ports import ModelFailed


class _Vector(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Vectors(msgspec.Struct, frozen=True):
    data: list[_Vector]


class _OllamaVectors(msgspec.Struct, frozen=True):
    embeddings: list[list[float]]


class _EncoderTags(msgspec.Struct, frozen=True):
    models: tuple[Pulled, ...] = ()


class OpenAIEncoder:
    """A model on a server with OpenAI's protocol, such as llama.cpp's, vLLM or text-embeddings-inference.

    The protocol tells only a model's name, so the operator declares its `revision`.
    """

    def __init__(self, endpoint: Endpoint, model: str, revision: str) -> None:
        self._endpoint = endpoint
        self._model = model
        self._revision = revision

    def identity(self) -> dict[str, str]:
        """Return the declared name and revision."""
        return {"kind": "openai", "name": self._model, "revision": self._revision}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; the vectors may come in any order and are sorted by their index."""
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        found = self._endpoint.post("/v1/embeddings", body, _Vectors).data
        numbered = {vector.index: vector.embedding for vector in found}
        if sorted(numbered) != list(range(len(texts))) or len(found) != len(texts):
            problem = f"{self._endpoint.url} sent {len(found)} vectors with wrong numbers for {len(texts)} texts"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        return [numbered[at] for at in range(len(texts))]

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()


class OllamaEncoder:
    """A pulled model of Ollama, which is another one after a new pull.

    It uses `/api/embed` with `truncate: false`, since `/v1` and the default silently truncate texts.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def identity(self) -> dict[str, str]:
        """Return the full tag and the digest of its manifest."""
        tag = make_full_tag(self._model)
        pulled = {each.name: each.digest for each in self._endpoint.get("/api/tags", _EncoderTags).models}
        if tag not in pulled:
            problem = f"{self._endpoint.url} has no model {tag!r}: {advise_fetching(self._model)}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        return {"kind": "ollama", "name": tag, "digest": pulled[tag]}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`."""
        body = {"model": self._model, "input": list(texts), "truncate": False}
        return self._endpoint.post("/api/embed", body, _OllamaVectors).embeddings

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()
