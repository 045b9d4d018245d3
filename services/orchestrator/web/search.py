"""`/search`: why a document is found: ranks, scores, fusion."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

from fastapi import APIRouter, Response

from services.orchestrator.api import parameters
from services.orchestrator.api.search import READS, SearchAnswer, SearchHit, SearchRequest, found
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.searching.steps import Mode
from services.orchestrator.web.messages import Tried, tried
from services.orchestrator.web.page import Visitor, page, parsed
from shared.pages import highlights
from shared.pages.charts.shares import shares
from shared.pipelines.registry import covered
from shared.rag.dictionary import is_generic
from shared.retrieval_settings import Retrieval
from shared.runtime.parameters import params_of
from shared.storage import configurations, corpora, pages

router = APIRouter()
NAMES = {"q": "question", "method": "mode"}
"""Of the address, and what the API calls them."""
NEEDLESS = frozenset({"enhance.rewrite", "enhance.decompose", "enhance.hyde", "rerank.enabled", "rerank.refuse"})
"""Parameters that the API takes, but that need a model or say nothing of a search."""


class Found(NamedTuple):
    """How a list held a document."""

    list: str
    rank: int | None
    score: float | None
    adds: float | None


@page(router, "/search")
async def playground(visit: Visitor, deps: RequestDeps) -> Response:
    """The form, and what it found."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    listed = await corpora.listed(deps.database, pages.LARGEST)
    configured = params_of({}, (await configurations.holding(deps.database)).params)
    sections = parameters.sections(_is_read, configured)
    searched = await tried(partial(_answer, query, deps)) if "q" in query else Tried(None, {})
    return visit.show(
        "search/search.html", title="Search", status=searched.status, corpora=listed.data, query=query,
        methods=get_args(Mode), messages=searched.messages, sections=sections,
        adjusted=any(name.startswith(parameters.PREFIX) for name in query),
        others=searched.others({*SearchRequest.model_fields, *parameters.names(sections)}),
        **_drawn(searched.value, query, deps.settings.retrieval),
    )  # fmt: skip


async def _answer(query: Mapping[str, str], deps: Deps) -> SearchAnswer:
    named = {NAMES.get(name, name): value for name, value in query.items() if not name.startswith(parameters.PREFIX)}
    return await found(parsed(SearchRequest, {**named, "params": parameters.tree(query)}), deps)


def _is_read(path: str) -> bool:
    return covered(path, READS - NEEDLESS) and path not in NEEDLESS and ".decoding." not in path


def _drawn(answer: Any, query: Mapping[str, str], retrieval: Retrieval) -> dict[str, Any]:
    if not isinstance(answer, SearchAnswer):
        return {"answer": None}
    best = max((hit.fused or 0.0 for hit in answer.hits), default=0.0)
    return {
        "answer": answer, "lists": _lists(retrieval), "how": {hit.hash: list(_found(hit)) for hit in answer.hits},
        "bar": lambda hit: shares([each.adds or 0.0 for each in _found(hit)], best),
        "marked": partial(highlights.highlighted, terms=_terms(query["q"])),
        "fallbacks": [decision for decision in answer.decisions if decision.fallback],
    }  # fmt: skip


def _lists(retrieval: Retrieval) -> dict[str, str]:
    """What makes each list, in words."""
    dense, sparse = retrieval.dense.backend, retrieval.sparse.backend
    return {
        "dense": "vectors" + (" (Elasticsearch)" if dense == "elasticsearch" else f" ({dense})"),
        "sparse": "BM25" + (" (Elasticsearch)" if sparse == "elasticsearch" else ""),
    }


def _found(hit: SearchHit) -> Iterator[Found]:
    """Every list that held the document; of one search a document may have scores, of many wordings only ranks."""
    adds = hit.contributions or {}
    if hit.paths is None:
        yield from (
            Found(name, getattr(hit, f"{name}_rank"), getattr(hit, f"{name}_score"), adds.get(name))
            for name in ("dense", "sparse")
        )
        return
    scores = {f"original {name}": getattr(hit, f"{name}_score") for name in ("dense", "sparse")}
    yield from (Found(name, rank, scores.get(name), adds.get(name)) for name, rank in hit.paths.items())


def _terms(question: str) -> frozenset[str]:
    """The question's words; without those of any question, where others are left."""
    every = highlights.words(question)
    return frozenset(word for word in every if not is_generic(word)) or every
