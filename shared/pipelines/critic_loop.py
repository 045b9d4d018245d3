"""critic-loop: a critic rates each page of documents, then the loop generates, pages on or rewrites the query.

Seed document 004.
"""

from msgspec.structs import replace

from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.critic import CriticAction, Round, decide, filter_relevant, rate_page, sort_by_relevance
from shared.rag.retrieval import QueryPages, gather
from shared.rag.rewriting import read_rewrite, rewrite_again
from shared.samples import Candidate, Decision, Library, Sample, Steps, Trace


@pipeline("critic-loop", reads=("context_size", "critic", "duplicates", *FUSED, "generate", "judge"))
def critic_loop(sample: Sample, params: Params, library: Library) -> Steps:
    """Search and rate in rounds until enough documents are relevant or no attempt is left, then generate."""
    critic, question = params.critic, sample.question
    pages, judged, decisions = QueryPages(question, params, library), list[Candidate](), list[Decision]()
    query, rewritten, attempt, action = question, False, 0, CriticAction.CONTINUE
    while action is not CriticAction.GENERATE:
        attempt += 1
        paths = pages.make_searches(query)
        gathered = gather(paths, (yield [path.call for path in paths]))
        pages.add(query, gathered.lists)
        decisions += [replace(each, round=attempt) for each in gathered.decisions]
        unseen = pages.list_unseen(query, {each.document for each in judged})
        accepted = filter_relevant(sort_by_relevance(judged), critic.generate)[: critic.k] if critic.accumulate else []
        page, reasons = yield from rate_page(unseen, question, critic, tuple(each.document for each in accepted))
        judged += page
        round_ = Round(attempt, query, page, len(filter_relevant(judged, critic.generate)), reasons, rewritten)
        verdict = decide(round_, critic)
        decisions.append(round_.decision(verdict, critic))
        action, rewritten = verdict.action, False
        if action is CriticAction.REWRITE:
            # Another query for the original question; without one, the last query continues with its next page. The
            # model is shown at most one page of the best documents that are not irrelevant.
            hints = filter_relevant(sort_by_relevance(judged), critic.rewrite)[: critic.k]
            reply = yield rewrite_again(question, critic.decoding, tuple(each.document for each in hints))
            written = read_rewrite(question, reply)
            query, rewritten = next(iter(written.queries), query), bool(written.queries)
            decisions.append(replace(written.decision, round=attempt))
    best_first = sort_by_relevance(judged)
    trace = Trace(
        candidates=tuple(best_first),
        duplicates=tuple(pages.duplicates),
        unscored=bool(judged) and all(each.relevance is None for each in judged),
        decisions=tuple(decisions),
    )
    # The relevant documents, or all documents without one.
    chosen = (filter_relevant(best_first, critic.generate) or best_first)[: params.context_size]
    return (yield from answer(question, [each.document for each in chosen], trace))
