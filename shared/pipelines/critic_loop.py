"""critic-loop: a critic rates each page of documents, then the loop generates, pages on or rewrites the query.

Seed document 004.
"""

from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import replace

from shared.calls import Write, Yielded
from shared.params import CriticParams, Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.critic import (
    CriticAction,
    Round,
    add_rating,
    ask_critic,
    choose_documents,
    choose_hints,
    decide,
    filter_relevant,
    read_critique,
    sort_by_relevance,
)
from shared.rag.prompts import localised
from shared.rag.retrieval import QueryPages, gather
from shared.rag.rewriting import read_rewrite
from shared.replies import Failure
from shared.samples import Candidate, Decision, Library, Sample, Steps, Trace


@pipeline("critic-loop", reads=("context_size", "critic", "duplicates", *FUSED, "generate", "judge"))
def critic_loop(sample: Sample, params: Params, library: Library) -> Steps:
    """Search and rate in rounds until enough documents are relevant or no attempt is left, then generate."""
    critic, question = params.critic, sample.question
    pages, judged, decisions = QueryPages(question, params, library), list[Candidate](), list[Decision]()
    query, attempt, action = question, 0, CriticAction.CONTINUE
    while action is not CriticAction.GENERATE:
        attempt += 1
        paths = pages.make_searches(query)
        gathered = gather(paths, (yield [path.call for path in paths]))
        pages.add(query, gathered.lists)
        decisions += [replace(each, round=attempt) for each in gathered.decisions]
        page, reasons = yield from _rate_page(
            pages.list_unseen(query, {each.document for each in judged}), question, critic
        )
        judged += page
        round_ = Round(attempt, query, page, len(filter_relevant(judged, critic.generate)), reasons)
        verdict = decide(round_, critic)
        decisions.append(round_.decision(verdict, critic))
        action = verdict.action
        if action is CriticAction.REWRITE:
            query, rewriting = yield from _rewrite_query(round_, question, judged, critic)
            decisions.append(rewriting)
    trace = Trace(
        candidates=tuple(sort_by_relevance(judged)),
        duplicates=tuple(pages.duplicates),
        unscored=bool(judged) and all(each.relevance is None for each in judged),
        decisions=tuple(decisions),
    )
    chosen = [each.document for each in choose_documents(judged, critic)[: params.context_size]]
    return (yield from answer(question, chosen, trace))


def _rate_page(
    page: Sequence[Candidate], question: str, critic: CriticParams
) -> Generator[Yielded, Any, tuple[list[Candidate], list[str]]]:
    """Return the page with its ratings, and their reasons. The critic always sees the original question."""
    if not page:
        return [], []
    replies = yield [ask_critic(each.document, question, critic) for each in page]
    found = [read_critique(reply) for reply in replies]
    reasons = ["" if isinstance(each, Failure) else each.reason for each in found]
    return [add_rating(candidate, each) for candidate, each in zip(page, found, strict=True)], reasons


def _rewrite_query(
    round_: Round, question: str, judged: Sequence[Candidate], critic: CriticParams
) -> Generator[Yielded, Any, tuple[str, Decision]]:
    """Return another query for the original question; if the model writes none, the last one, for its next page."""
    reply = yield Write(
        template=localised("rewrite-again", question),
        decoding=critic.decoding,
        slots={"question": question},
        documents=tuple(each.document for each in choose_hints(judged, critic)),
    )
    written = read_rewrite(question, reply)
    return next(iter(written.queries), round_.query), replace(written.decision, round=round_.attempt)
