"""What rules bring: by a search with question and rule, and by a chain of searches along the body; and their union."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.contracts.calls import Yielded
from shared.contracts.params import Params
from shared.contracts.replies import NumberedRule
from shared.contracts.samples import Candidate, Decision, Item, Library, Trace
from shared.rag.guidance import Guidance, side_of
from shared.rag.interleaving import first_of_each, interleaved
from shared.rag.lockstep import Part, in_step
from shared.rag.rule_chains import Brought, chain, hops, index_search, start_of
from shared.rag.rule_queries import Query, rule_queries
from shared.rag.rule_sentences import relation_words, rule_sentence

STAGE = "rule"
"""Of the decision of each rule: it guided a `search`, or stands in the `prompt` alone."""


class RuleList(NamedTuple):
    """What a rule has brought."""

    found: NumberedRule
    query: Query
    direct: Brought
    """By its query."""
    chained: Brought
    """By its chain."""

    @property
    def candidates(self) -> list[Candidate]:
        """What its chain has found, then what its query has, each document once."""
        return first_of_each(self.chained.candidates + self.direct.candidates, _document)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Of all its searches."""
        return self.direct.traces + self.chained.traces


def search_by_rules(
    item: Item, guidance: Guidance, params: Params, library: Library
) -> Generator[Yielded, Any, Trace]:  # fmt: skip
    """The union of what the rules bring, with a decision for each rule; all are searched for side by side.

    Raises:
        CallFailed: a search failed.
    """
    queries = yield from rule_queries(item.question, guidance, params)
    chains = [_chained(item, found, guidance.phrases, params, library) for found in guidance.rules]
    brought = yield from in_step([_direct(query.text, params) for query in queries] + chains)
    half = len(queries)
    lists = list(map(RuleList, guidance.rules, queries, brought[:half], brought[half:]))
    merged = union(lists, params)
    decisions = tuple(_decision(each, merged, guidance.phrases) for each in lists)
    return replace(merged, decisions=decisions + merged.decisions)


def union(lists: Sequence[RuleList], params: Params) -> Trace:
    """At most `params.candidates`, each once: what the rules' chains have found by turns, then what their queries have.

    A candidate's `paths` say at which rank which rules brought it; its other ranks and scores are those of the first.
    """
    paths: dict[str, dict[str, int]] = {}
    for each in lists:
        for rank, candidate in enumerate(each.candidates, start=1):
            paths.setdefault(candidate.document, {})[_path(each.found)] = rank
    by_turns = _by_turns([each.chained for each in lists]) + _by_turns([each.direct for each in lists])
    kept = first_of_each(by_turns, _document)[: params.candidates]
    traces = [trace for each in lists for trace in each.traces]
    decisions = [decision for trace in traces for decision in trace.decisions]
    return Trace(
        candidates=tuple(
            replace(each, rank=rank, paths=paths[each.document], score=None) for rank, each in enumerate(kept, start=1)
        ),
        duplicates=tuple(dict.fromkeys(hash_ for trace in traces for hash_ in trace.duplicates)),
        decisions=tuple(first_of_each(decisions, repr)),
    )


def in_prompt(guidance: Guidance) -> tuple[Decision, ...]:
    """The decisions of rules that stand in the prompt and guide no search."""
    return tuple(
        Decision(stage=STAGE, action="prompt", detail=_told(found, guidance.phrases)) for found in guidance.rules
    )


def _by_turns(brought: Sequence[Brought]) -> list[Candidate]:
    """The best path of every rule, then the second ..."""
    return [candidate for path in interleaved([each.paths for each in brought]) for candidate in path]


def _direct(query: str, params: Params) -> Part[Brought]:
    trace = yield from index_search(query, params)
    return Brought(tuple((each,) for each in trace.candidates), (trace,))


def _chained(
    item: Item, found: NumberedRule, phrases: Mapping[str, str], params: Params, library: Library
) -> Part[Brought]:  # fmt: skip
    start = start_of(item, relation_words(found.rule.head.relation, phrases))
    return chain(start, hops(found.rule, side_of(item), phrases), params, library)


def _decision(list_: RuleList, merged: Trace, phrases: Mapping[str, str]) -> Decision:
    name = _path(list_.found)
    documents = [each.document for each in merged.candidates if name in (each.paths or ())]
    chained = {each.document for each in list_.chained.candidates}
    detail = {
        **_told(list_.found, phrases), "query": list_.query.text, "documents": documents,
        "chained": [document for document in documents if document in chained],
    }  # fmt: skip
    return Decision(stage=STAGE, action="search", detail=detail, fallback=list_.query.fallback)


def _told(found: NumberedRule, phrases: Mapping[str, str]) -> dict[str, str | float | bool | list[str] | None]:
    rule = found.rule
    return {
        "rule": rule_sentence(rule, phrases), "number": found.number, "certainty": rule.certainty,
        "support": rule.support,
    }  # fmt: skip


def _path(found: NumberedRule) -> str:
    """As a rule stands in a candidate's `paths`."""
    return f"rule {found.number}"


def _document(candidate: Candidate) -> str:
    return candidate.document
