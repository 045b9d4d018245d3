"""Search by rules: with question and rule, and by a chain of searches along the body; then merge the lists."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.calls import Yielded
from shared.params import Params
from shared.rag.guidance import Guidance, get_asked_side
from shared.rag.interleaving import interleave, keep_first_of_each
from shared.rag.lockstep import Part, run_in_step
from shared.rag.rule_chains import ChainResult, choose_start, follow_chain, order_hops, search_index
from shared.rag.rule_queries import RuleQuery, make_rule_queries
from shared.rag.rule_sentences import write_relation, write_rule
from shared.replies import NumberedRule
from shared.samples import Candidate, Decision, Item, Library, Trace

STAGE = "rule"
"""Of the decision of each rule: it guided a `search`, or stands in the `prompt` alone."""


class RuleList(NamedTuple):
    """The documents that a rule found."""

    found: NumberedRule
    query: RuleQuery
    direct: ChainResult
    """Documents that the rule's query found."""
    chained: ChainResult
    """Documents that the rule's chain found."""

    @property
    def candidates(self) -> list[Candidate]:
        """Return the documents of its chain, then those of its query, each once."""
        return keep_first_of_each(self.chained.candidates + self.direct.candidates, _document)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Return the traces of all its searches."""
        return self.direct.traces + self.chained.traces


def search_by_rules(
    item: Item, guidance: Guidance, params: Params, library: Library
) -> Generator[Yielded, Any, Trace]:  # fmt: skip
    """Search by all rules side by side and merge the results, with a decision for each rule.

    Raises:
        CallFailed: a search failed.
    """
    queries = yield from make_rule_queries(item.question, guidance, params)
    chains = [_follow_rule(item, found, guidance.phrases, params, library) for found in guidance.rules]
    brought = yield from run_in_step([_search_once(query.text, params) for query in queries] + chains)
    half = len(queries)
    lists = list(map(RuleList, guidance.rules, queries, brought[:half], brought[half:]))
    merged = merge_rule_lists(lists, params)
    decisions = tuple(_decision(each, merged, guidance.phrases) for each in lists)
    return replace(merged, decisions=decisions + merged.decisions)


def merge_rule_lists(lists: Sequence[RuleList], params: Params) -> Trace:
    """Merge at most `params.candidates` documents: those of the rules' chains by turns, then of their queries.

    A candidate's `paths` tell at which rank which rules found it; its other ranks and scores are those of its first
    list.
    """
    paths: dict[str, dict[str, int]] = {}
    for each in lists:
        for rank, candidate in enumerate(each.candidates, start=1):
            paths.setdefault(candidate.document, {})[_path(each.found)] = rank
    by_turns = _interleave_paths([each.chained for each in lists]) + _interleave_paths([each.direct for each in lists])
    kept = keep_first_of_each(by_turns, _document)[: params.candidates]
    traces = [trace for each in lists for trace in each.traces]
    decisions = [decision for trace in traces for decision in trace.decisions]
    return Trace(
        candidates=tuple(
            replace(each, rank=rank, paths=paths[each.document], score=None) for rank, each in enumerate(kept, start=1)
        ),
        duplicates=tuple(dict.fromkeys(hash_ for trace in traces for hash_ in trace.duplicates)),
        decisions=tuple(keep_first_of_each(decisions, repr)),
    )


def note_prompt_rules(guidance: Guidance) -> tuple[Decision, ...]:
    """Make the decisions for rules that stand in the prompt and guide no search."""
    return tuple(
        Decision(stage=STAGE, action="prompt", detail=_describe_rule(found, guidance.phrases))
        for found in guidance.rules
    )


def _interleave_paths(brought: Sequence[ChainResult]) -> list[Candidate]:
    """Yield the best path of every rule, then the second, and so on."""
    return [candidate for path in interleave([each.paths for each in brought]) for candidate in path]


def _search_once(query: str, params: Params) -> Part[ChainResult]:
    trace = yield from search_index(query, params)
    return ChainResult(tuple((each,) for each in trace.candidates), (trace,))


def _follow_rule(
    item: Item, found: NumberedRule, phrases: Mapping[str, str], params: Params, library: Library
) -> Part[ChainResult]:  # fmt: skip
    start = choose_start(item, write_relation(found.rule.head.relation, phrases))
    return follow_chain(start, order_hops(found.rule, get_asked_side(item), phrases), params, library)


def _decision(list_: RuleList, merged: Trace, phrases: Mapping[str, str]) -> Decision:
    name = _path(list_.found)
    documents = [each.document for each in merged.candidates if name in (each.paths or ())]
    chained = {each.document for each in list_.chained.candidates}
    detail = {
        **_describe_rule(list_.found, phrases), "query": list_.query.text, "documents": documents,
        "chained": [document for document in documents if document in chained],
    }  # fmt: skip
    return Decision(stage=STAGE, action="search", detail=detail, fallback=list_.query.fallback)


def _describe_rule(found: NumberedRule, phrases: Mapping[str, str]) -> dict[str, str | float | bool | list[str] | None]:
    rule = found.rule
    return {
        "rule": write_rule(rule, phrases), "number": found.number, "certainty": rule.certainty,
        "support": rule.support,
    }  # fmt: skip


def _path(found: NumberedRule) -> str:
    """Return the name of a rule in a candidate's `paths`."""
    return f"rule {found.number}"


def _document(candidate: Candidate) -> str:
    return candidate.document
