"""OpenAI's embeddings, and reranking."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from mathrag.errors import Invalid, Unavailable
from services.orchestrator.access.identity import declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import RequestDeps
from services.orchestrator.openai.chat import StrictBody, put_in_list
from services.orchestrator.openai.models import find_model
from services.orchestrator.searching import to_refusal
from shared.calls import MAX_QUESTION
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.replies import Failure, FailureKind
from shared.runtime.pins import pin_reranker
from shared.shapes import Scope

router = APIRouter()
MOST_TEXTS = 2048
"""Upper bound of the texts, as OpenAI's."""
Text = Annotated[str, Field(min_length=1)]


def _list_texts(given: Any) -> Any:
    if isinstance(given, list) and given and isinstance(given[0], int | list):
        raise PydanticCustomError("token_ids", "must be texts; token ids belong to another model's tokenizer")
    return put_in_list(given)


Input = Annotated[
    list[Text],
    Field(min_length=1, max_length=MOST_TEXTS),
    BeforeValidator(_list_texts, json_schema_input_type=Text | list[Text]),
]
"""Texts to embed, or one."""


class EmbeddingsRequest(StrictBody):
    """Texts to embed; token ids are refused, because they belong to another tokenizer."""

    model: Annotated[str, Field(min_length=1, max_length=300)]
    input: Input
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(gt=0)] | None = None
    user: str | None = None


@router.post("/embeddings")
async def create(request: EmbeddingsRequest, deps: RequestDeps) -> Response:
    """Returns a vector of length 1 for each text, in their order. Tokens are not counted, so `usage` is 0."""
    model = await find_model(deps, request.model, "embedder")
    texts = request.input
    try:
        vectors = (await RetrieverClient(deps.http, deps.settings).embed(texts)).vectors
    except NoReply as error:
        raise to_refusal(error) from error
    check_dimensions(request.dimensions, len(vectors[0]) // 4)
    return json(to_body(model.id, vectors, request.encoding_format))


def to_body(model: str, vectors: Sequence[bytes], form: str) -> dict[str, Any]:
    """Return the answer that holds these vectors."""
    data = []
    for index, vector in enumerate(vectors):
        embedding = base64.b64encode(vector).decode() if form == "base64" else np.frombuffer(vector, "<f4").tolist()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": 0, "total_tokens": 0}}


def check_dimensions(wanted: int | None, actual: int) -> None:
    """Check that vectors have the requested length.

    Raises:
        Invalid: they have another one; vectors are never shortened.
    """
    if wanted not in (None, actual):
        raise Invalid(
            f"`dimensions`: the model's vectors have {actual} dimensions and cannot be shortened", hint="leave it out"
        )


declare_scope(create, Scope.READ)

# Serves `/openai/v1/rerank` in Jina's form: orders documents by their relevance to a query.

MOST_DOCUMENTS = 1000


class TextDocument(StrictBody):
    """A document as a JSON object."""

    text: str


Document = Annotated[
    TextDocument,
    BeforeValidator(
        lambda document: {"text": document} if isinstance(document, str) else document,
        json_schema_input_type=str | TextDocument,
    ),
]


class RerankRequest(StrictBody):
    """A query, and the documents to order."""

    model: Annotated[str, Field(min_length=1, max_length=300)]
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]
    documents: Annotated[list[Document], Field(min_length=1, max_length=MOST_DOCUMENTS)]
    top_n: Annotated[int, Field(gt=0)] | None = None
    return_documents: bool = False


@router.post("/rerank")
async def rerank(request: RerankRequest, deps: RequestDeps) -> Response:
    """Returns the documents by descending relevance, which is a probability; ties keep the order of the request."""
    model = await find_model(deps, request.model, "reranker")
    texts = [each.text for each in request.documents]
    async with deps.database.transaction() as connection:
        pin = await pin_reranker(connection)
    try:
        scored = await RetrieverClient(deps.http, deps.settings).rerank(pin.hash, request.query, texts)
    except NoReply as error:
        raise to_refusal(error) from error
    if isinstance(scored, Failure):
        if scored.kind is FailureKind.CONTEXT_EXCEEDED:
            raise Invalid(f"`documents`: {scored.detail}")
        raise Unavailable(scored.detail, hint="see GET /readyz and the retriever's log")
    best = sorted(range(len(texts)), key=lambda place: -scored.scores[place])[: request.top_n]
    results: list[dict[str, Any]] = [{"index": place, "relevance_score": scored.scores[place]} for place in best]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    return json({"model": model.id, "results": results, "usage": {"total_tokens": 0}})


declare_scope(rerank, Scope.READ)
