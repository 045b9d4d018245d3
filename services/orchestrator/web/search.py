"""Serves `/search`: shows why a document is found, with ranks, scores and fusion."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

from fastapi import APIRouter, Response

from services.orchestrator.api import pipelines
from services.orchestrator.api.search import READS, SearchAnswer, SearchHit, SearchRequest, run_search
from services.orchestrator.deps import RequestDeps
from services.orchestrator.searching import Mode
from services.orchestrator.web.page import FormResult, Visitor, page, parse_as, try_form
from shared.pages import formatting
from shared.pages.charts import draw_shares
from shared.pipelines.switches import covers
from shared.rag.rewriting import is_generic
from shared.runtime.parameters import parse_params
from shared.settings import Retrieval
from shared.storage import configurations, corpora, database

router = APIRouter()
NAMES = {"q": "question", "method": "mode"}
"""Fields of the address, and the API's names for them."""


class ListRank(NamedTuple):
    """Tells how one list ranked a document, and its contribution to the fused score."""

    list: str
    rank: int | None
    score: float | None
    adds: float | None


@page(router, "/search")
async def playground(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the form and the documents found."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    listed = await corpora.list_corpora(deps.database, database.LARGEST)
    configured = parse_params({}, (await configurations.load_newest(deps.database)).params)
    # A search shows the documents even where a job would refuse the question.
    sections = pipelines.list_sections(lambda path: covers(path, READS) and path != "rerank.refuse", configured)
    values = {NAMES.get(name, name): value for name, value in query.items() if not name.startswith(pipelines.PREFIX)}
    searched = FormResult(None, {})
    if "q" in query:
        request = {**values, "params": pipelines.nest(query)}
        searched = await try_form(lambda: run_search(parse_as(SearchRequest, request), deps))
    return visit.show(
        "search/search.html", title="Search", status=searched.status, corpora=listed.data, query=query,
        methods=get_args(Mode), messages=searched.messages, sections=sections,
        adjusted=any(name.startswith(pipelines.PREFIX) for name in query),
        others=searched.others({*SearchRequest.model_fields, *pipelines.get_names(sections)}),
        **_make_values(searched.value, query, deps.settings.retrieval),
    )  # fmt: skip


def _make_values(answer: Any, query: Mapping[str, str], retrieval: Retrieval) -> dict[str, Any]:
    if not isinstance(answer, SearchAnswer):
        return {"answer": None}
    best = max((hit.fused or 0.0 for hit in answer.hits), default=0.0)
    dense, sparse = retrieval.dense.backend, retrieval.sparse.backend
    lists = {
        "dense": f"vectors ({'Elasticsearch' if dense == 'elasticsearch' else dense})",
        "sparse": "BM25 (Elasticsearch)" if sparse == "elasticsearch" else "BM25",
    }
    # The words of the question, without stop words unless it has only stop words.
    every = formatting.extract_terms(query["q"])
    terms = frozenset(word for word in every if not is_generic(word)) or every
    return {
        "answer": answer, "lists": lists,
        "how": {hit.hash: list(_list_ranks(hit)) for hit in answer.hits},
        "bar": lambda hit: draw_shares([each.adds or 0.0 for each in _list_ranks(hit)], best),
        "marked": partial(formatting.highlight, terms=terms),
        "fallbacks": [decision for decision in answer.decisions if decision.fallback],
    }  # fmt: skip


def _list_ranks(hit: SearchHit) -> Iterator[ListRank]:
    """Yield every list that contained the document. Scores are known after one search; after several wordings only
    ranks are.
    """
    adds = hit.contributions or {}
    if hit.paths is None:
        yield from (
            ListRank(name, getattr(hit, f"{name}_rank"), getattr(hit, f"{name}_score"), adds.get(name))
            for name in ("dense", "sparse")
        )
        return
    scores = {f"original {name}": getattr(hit, f"{name}_score") for name in ("dense", "sparse")}
    yield from (ListRank(name, rank, scores.get(name), adds.get(name)) for name, rank in hit.paths.items())
