"""critic-loop: retrieve, have a critic rate what was found, and generate, go deeper or rewrite (seed document 004)."""

from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Write, Yielded
from shared.contracts.params import CriticParams, Params
from shared.contracts.replies import Failure
from shared.contracts.samples import Candidate, Decision, Library, Sample, Steps, Trace
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.critic import Action, Round, criticised, critique, decide, enough, hints, ordered, rated, relevant
from shared.rag.language import localised
from shared.rag.pages import Pages
from shared.rag.paths import gather
from shared.rag.rewriting import rewritten


@pipeline("critic-loop", reads=("context_size", "critic", "duplicates", *FUSED, "generate", "judge"))
def critic_loop(sample: Sample, params: Params, library: Library) -> Steps:
    """Rounds of search and rating until there is enough, or no attempt left; then generate."""
    critic, question = params.critic, sample.question
    pages, judged, decisions = Pages(question, params, library), list[Candidate](), list[Decision]()
    query, attempt, action = question, 0, Action.CONTINUE
    while action is not Action.GENERATE:
        attempt += 1
        paths = pages.next(query)
        gathered = gather(paths, (yield [path.call for path in paths]))
        pages.add(query, gathered.lists)
        decisions += [replace(each, round=attempt) for each in gathered.decisions]
        page, reasons = yield from _rated(pages.unseen(query, {each.document for each in judged}), question, critic)
        judged += page
        round_ = Round(attempt, query, page, len(relevant(judged, critic.generate)), reasons)
        verdict = decide(round_, critic)
        decisions.append(round_.decision(verdict, critic))
        action = verdict.action
        if action is Action.REWRITE:
            query, rewriting = yield from _rewritten(round_, question, judged, critic)
            decisions.append(rewriting)
    trace = Trace(
        candidates=tuple(ordered(judged)),
        duplicates=tuple(pages.duplicates),
        unscored=bool(judged) and all(each.relevance is None for each in judged),
        decisions=tuple(decisions),
    )
    chosen = [each.document for each in enough(judged, critic)[: params.context_size]]
    return (yield from answer(question, chosen, trace))


def _rated(
    page: Sequence[Candidate], question: str, critic: CriticParams
) -> Generator[Yielded, Any, tuple[list[Candidate], list[str]]]:
    """The page with its ratings, and their reasons. The critic sees the original question, whatever query was used."""
    if not page:
        return [], []
    replies = yield [critique(each.document, question, critic) for each in page]
    found = [criticised(reply) for reply in replies]
    reasons = ["" if isinstance(each, Failure) else each.reason for each in found]
    return [rated(candidate, each) for candidate, each in zip(page, found, strict=True)], reasons


def _rewritten(
    round_: Round, question: str, judged: Sequence[Candidate], critic: CriticParams
) -> Generator[Yielded, Any, tuple[str, Decision]]:
    """Another query for the original question; where none is written, the next page of the one that there is."""
    reply = yield Write(
        template=localised("rewrite-again", question),
        decoding=critic.decoding,
        slots={"question": question},
        documents=tuple(each.document for each in hints(judged, critic)),
    )
    written = rewritten(question, reply)
    return next(iter(written.queries), round_.query), replace(written.decision, round=round_.attempt)
