"""Encoders behind HTTP: any server with `/v1/embeddings`, and Ollama's own `/api/embed`."""

from collections.abc import Sequence

import msgspec

from shared.contracts.replies import FailureKind
from shared.models.endpoint import Endpoint
from shared.models.ollama import Pulled, full_tag
from shared.models.ports import ModelFailed


class _Vector(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Vectors(msgspec.Struct, frozen=True):
    data: list[_Vector]


class _Embedded(msgspec.Struct, frozen=True):
    embeddings: list[list[float]]


class _Tags(msgspec.Struct, frozen=True):
    models: tuple[Pulled, ...] = ()


class OpenAIEncoder:
    """OpenAI's protocol, as llama.cpp's server, vLLM, text-embeddings-inference and many others speak it.

    It says nothing of a model but its name: `revision` is what the operator knows besides.
    """

    def __init__(self, endpoint: Endpoint, model: str, revision: str) -> None:
        self._endpoint = endpoint
        self._model = model
        self._revision = revision

    def identity(self) -> dict[str, str]:
        """Name and revision, as they were declared."""
        return {"kind": "openai", "name": self._model, "revision": self._revision}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; the protocol numbers its vectors, and need not send them in order."""
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        found = self._endpoint.post("/v1/embeddings", body, _Vectors).data
        numbered = {vector.index: vector.embedding for vector in found}
        if sorted(numbered) != list(range(len(texts))) or len(found) != len(texts):
            said = f"{self._endpoint.url} numbered {len(found)} vectors wrongly for {len(texts)} texts"
            raise ModelFailed(FailureKind.BACKEND_ERROR, said)
        return [numbered[at] for at in range(len(texts))]

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()


class OllamaEncoder:
    """A pulled model; pulled anew, it is another one.

    Never `/v1`, and never without `truncate`: by default texts are cut in silence.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def identity(self) -> dict[str, str]:
        """Name and digest of the manifest."""
        tag = full_tag(self._model)
        pulled = {each.name: each.digest for each in self._endpoint.get("/api/tags", _Tags).models}
        if tag not in pulled:
            said = f"{self._endpoint.url} has no model {tag!r}: ollama pull {self._model}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, said)
        return {"kind": "ollama", "name": tag, "digest": pulled[tag]}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`."""
        body = {"model": self._model, "input": list(texts), "truncate": False}
        return self._endpoint.post("/api/embed", body, _Embedded).embeddings

    def close(self) -> None:
        """Close connections."""
        self._endpoint.close()
