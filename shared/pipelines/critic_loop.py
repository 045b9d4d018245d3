"""critic-loop: retrieve, have a critic rate what was found, and generate, go deeper or rewrite (seed document 004)."""

from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Judge, Write, Yielded, require
from shared.contracts.params import CriticParams, Params
from shared.contracts.samples import Candidate, Decision, Library, Sample, Steps, Trace
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.critic import Action, Round, decide, enough, hints, ordered, rated, relevant
from shared.rag.language import localised
from shared.rag.pages import Pages
from shared.rag.paths import gather
from shared.rag.provenance import answered, generation
from shared.rag.rewriting import rewritten


@pipeline("critic-loop", reads=("context_size", "critic", *FUSED, "generate", "judge"))
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
        page = yield from _rated(pages.unseen(query, {each.document for each in judged}), question)
        judged += page
        round_ = Round(attempt, query, page, len(relevant(judged, critic.generate)))
        verdict = decide(round_, critic)
        decisions.append(round_.decision(verdict))
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
    chosen = tuple(each.document for each in enough(judged, critic)[: params.context_size])
    generated = require((yield generation(question, chosen)))
    return answered(generated, chosen, trace)


def _rated(page: Sequence[Candidate], question: str) -> Generator[Yielded, Any, list[Candidate]]:
    """The critic sees the original question, whatever query found the document."""
    if not page:
        return []
    rubric = localised("relevance", question)
    replies = yield [Judge(rubric=rubric, document=each.document, question=question) for each in page]
    return [rated(each, reply) for each, reply in zip(page, replies, strict=True)]


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
