"""Serves `/openai/v1/rerank` in Jina's form: orders documents by their relevance to a query."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BeforeValidator, Field

from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.routes import json
from services.orchestrator.deps import RequestDeps
from services.orchestrator.openai.bodies import StrictBody
from services.orchestrator.openai.names import find_model
from services.orchestrator.searching.call_answerer import to_refusal
from shared.calls import MAX_QUESTION
from shared.errors import Invalid, Unavailable
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.replies import Failure, FailureKind
from shared.runtime.pins import pin_reranker
from shared.shapes import Scope

router = APIRouter()
MOST_DOCUMENTS = 1000


class TextDocument(StrictBody):
    """A document as a JSON object."""

    text: str


def _read_document(document: Any) -> Any:
    return {"text": document} if isinstance(document, str) else document


Document = Annotated[TextDocument, BeforeValidator(_read_document, json_schema_input_type=str | TextDocument)]


class RerankRequest(StrictBody):
    """A query, and the documents to order."""

    model: Annotated[str, Field(min_length=1, max_length=300)]
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]
    documents: Annotated[list[Document], Field(min_length=1, max_length=MOST_DOCUMENTS)]
    top_n: Annotated[int, Field(gt=0)] | None = None
    return_documents: bool = False

    def texts(self) -> list[str]:
        """Return the documents' texts in their order."""
        return [each.text for each in self.documents]


@router.post("/rerank")
async def create(request: RerankRequest, deps: RequestDeps) -> Response:
    """Returns the documents by descending relevance, which is a probability; ties keep the order of the request."""
    model = await find_model(deps, request.model, "reranker")
    texts = request.texts()
    async with deps.database.transaction() as connection:
        pin = await pin_reranker(connection)
    try:
        scored = await RetrieverClient(deps.http, deps.settings).rerank(pin.hash, request.query, texts)
    except NoReply as error:
        raise to_refusal(error) from error
    if isinstance(scored, Failure):
        raise _make_refusal(scored)
    best = sorted(range(len(texts)), key=lambda place: -scored.scores[place])[: request.top_n]
    results = [
        _make_result(place, scored.scores[place], texts[place], shown=request.return_documents) for place in best
    ]
    return json({"model": model.id, "results": results, "usage": {"total_tokens": 0}})


def _make_result(index: int, score: float, text: str, *, shown: bool) -> dict[str, Any]:
    document = {"document": {"text": text}} if shown else {}
    return {"index": index, "relevance_score": score, **document}


def _make_refusal(failure: Failure) -> Invalid | Unavailable:
    if failure.kind is FailureKind.CONTEXT_EXCEEDED:
        return Invalid(f"`documents`: {failure.detail}")
    return Unavailable(failure.detail, hint="see GET /readyz and the retriever's log")


declare_scope(create, Scope.READ)
