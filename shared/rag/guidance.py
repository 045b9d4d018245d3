"""Rules that guide a search: the relation of a question, the rules about it, and their queries."""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from shared import canonical
from shared.calls import MAX_QUESTION, FindRules, RuleChoice, Write, Yielded
from shared.params import Params
from shared.rag.fusion import Part, interleave, keep_first_of_each, run_in_step
from shared.rag.prompts import localise
from shared.rag.provenance import FoundLists, make_fused_trace, make_search, make_searches, make_single_trace
from shared.rag.rewriting import read_rewrite
from shared.rag.text import contains_words, normalise_words
from shared.replies import (
    TEMPORAL,
    Atom,
    Failure,
    FailureKind,
    FoundRules,
    Miner,
    NumberedRule,
    Rule,
    Term,
    require,
)
from shared.rules.facts import format_name, phrase
from shared.samples import Candidate, Decision, Item, Library, Trace

Side = Literal["", "object", "subject"]


class RuleRequest(NamedTuple):
    """Which rules are wanted."""

    relation: str
    side: Side
    choice: RuleChoice


def choose(rules: Iterable[NumberedRule], asked: RuleRequest, miner: Miner) -> tuple[NumberedRule, ...]:
    """Return the chosen rules in order; the order of `rules` does not matter.

    Taken from parts, and from what was taken of these, they are the same.
    """
    choice = asked.choice
    fitting = [
        each
        for each in rules
        if each.rule.certainty >= choice.confidence and each.rule.support >= choice.support
        if each.rule.head.relation == asked.relation and _answers(each.rule, asked.side, miner)
    ]
    fitting.sort(
        key=lambda each: (-each.rule.certainty, -each.rule.support, len(each.rule.body), each.number),
        reverse=choice.order == "worst",
    )
    return tuple(fitting[: choice.most])


def draw(seed: int, most: int, of: int) -> list[int]:
    """Draw `most` different numbers from 0 to `of` - 1, or all: the beginning of a shuffle by `seed`."""
    moved: dict[int, int] = {}
    drawn = []
    for place in range(min(most, of)):
        chosen = place + int.from_bytes(sha256(f"{seed} {place}".encode()).digest()) % (of - place)
        drawn.append(moved.get(chosen, chosen))
        moved[chosen] = moved.get(place, place)
    return drawn


def get_predicted_side(rule: Rule) -> Literal["object", "subject"]:
    """Return the end of its head that a temporal rule predicts."""
    subject, obj = rule.head.subject, rule.head.object
    if subject == 0 or obj == 1:
        return "object"
    if obj == 0 or subject == 1:
        return "subject"
    # A frequent partner: the body does not bind the variable of the head.
    return "object" if any(isinstance(atom.object, int) for atom in rule.body[:1]) else "subject"


def _answers(rule: Rule, side: Side, miner: Miner) -> bool:
    """Return whether the rule predicts the asked end for more than one entity."""
    if miner in TEMPORAL:
        predicted = get_predicted_side(rule)
        if side not in ("", predicted):
            return False
        side = predicted
    known: Sequence[int | str] = {
        "object": [rule.head.subject], "subject": [rule.head.object], "": [rule.head.subject, rule.head.object],
    }[side]  # fmt: skip
    return any(isinstance(term, int) for term in known)


MOST_NAMED = 100
"""Relations that a model is asked to choose from."""


class RelationNames:
    """Finds the relation whose words occur in a text, normalised as answers are (`shared.rag.text`)."""

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        """`names` are pairs of a relation and words for it; a relation may have several."""
        self._relations: dict[tuple[str, ...], str] = {}
        for relation, said in sorted(names):
            self._relations.setdefault(tuple(normalise_words(said)), relation)
        self._lengths = sorted({len(each) for each in self._relations}, reverse=True)

    def find_in(self, text: str) -> str | None:
        """Return the relation whose words occur consecutively in `text`: the longest, ties by name."""
        phrase = normalise_words(text)
        for length in self._lengths:
            windows = (tuple(phrase[start : start + length]) for start in range(len(phrase) - length + 1))
            if found := [self._relations[window] for window in windows if window in self._relations]:
                return min(found)
        return None


def list_nearest(question: str, phrases: Mapping[str, str], most: int = MOST_NAMED) -> Sequence[str]:
    """Return the phrases that share most words with the question; ties are in alphabetical order."""
    question_words = set(normalise_words(question))
    return sorted(
        set(phrases.values()), key=lambda said: (-len(question_words.intersection(normalise_words(said))), said)
    )[:most]


# Find the rules that guide a question: the relation that it asks for, and the rules that predict this relation.

RELATION_STAGE = "relation"
"""Of the decision that says how the relation was found: the item `named` it, a `phrase`, the `judge`, or `none`."""
NO_RULE = "no_rule"
"""Fallback: the question has no rules, so it is searched for unchanged."""
UNKNOWN = "unknown_relation"
"""Fallback: the judge model's reply names no relation of the bank."""
_SEEDS = 1 << 63

How = Literal["named", "phrase", "judge", "none"]


class Guidance(NamedTuple):
    """Rules for a question; without rules, retrieval is the plain one."""

    rules: tuple[NumberedRule, ...]
    """The chosen rules, in the order of the choice."""
    phrases: Mapping[str, str]
    """The words for their relations."""
    decision: Decision


def find_guidance(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Find the relation that the item asks for, and its rules.

    Raises:
        CallFailed: the bank or the graph's phrases cannot be read.
    """
    if not params.rulerag.most:
        return _make_no_guidance(NO_RULE, params)
    if item.query is not None:
        return _make_guidance("named", require((yield find_rules(item, params, item.query.relation))), params)
    found = require((yield find_rules(item, params)))
    if found.relation is not None:
        return _make_guidance("phrase", found, params)
    return (yield from _ask_judge(item, params))


def find_rules(item: Item, params: Params, relation: str = "") -> FindRules:
    """Find the rules of a relation; without one, those of the relation whose phrase occurs in the question."""
    rulerag, seed = params.rulerag, 0
    if rulerag.order == "random":
        # Another seed for each question, and the same in each repeat.
        seed = int.from_bytes(canonical.digest([params.seed, item.question])[:8]) % _SEEDS
    choice = RuleChoice(
        most=rulerag.most, confidence=rulerag.confidence, support=rulerag.support, order=rulerag.order, seed=seed
    )
    question = "" if relation else item.question
    return FindRules(
        relation=relation, question=question, side=get_asked_side(item), phrases=rulerag.phrases, choice=choice
    )  # fmt: skip


def _ask_judge(item: Item, params: Params) -> Generator[Yielded, Any, Guidance]:
    """Ask the judge model which relation is meant; any result is a decision, never a failure."""
    rulerag, question = params.rulerag, item.question
    if not rulerag.ask:
        return _make_no_guidance(FailureKind.NOT_CONFIGURED.value, params)
    heads = require((yield FindRules(phrases=rulerag.phrases, choice=RuleChoice(most=0))))
    if not heads.phrases:
        return _make_no_guidance(NO_RULE, params)
    slots = {"question": question, "relations": "\n".join(list_nearest(question, heads.phrases))}
    reply = yield Write(template=localise("relation", question), decoding=rulerag.decoding, slots=slots)
    if isinstance(reply, Failure):
        return _make_no_guidance(reply.kind.value, params)
    first_line = next(iter(reply.text.strip().splitlines()), "")
    if not first_line:
        return _make_no_guidance(FailureKind.UNPARSED.value, params)
    relation = RelationNames(heads.phrases.items()).find_in(first_line)
    if relation is None:
        return _make_no_guidance(UNKNOWN, params)
    return _make_guidance("judge", require((yield find_rules(item, params, relation))), params)


def _make_guidance(how: How, found: FoundRules, params: Params) -> Guidance:
    detail, fallback = {"relation": found.relation, "bank": params.rules}, None if found.rules else NO_RULE
    decision = Decision(stage=RELATION_STAGE, action=how, detail={**detail}, fallback=fallback)
    return Guidance(found.rules, found.phrases, decision)


def _make_no_guidance(fallback: str, params: Params) -> Guidance:
    decision = Decision(stage=RELATION_STAGE, action="none", detail={"bank": params.rules}, fallback=fallback)
    return Guidance((), {}, decision)


def get_asked_side(item: Item) -> Side:
    """Return the end that the item asks for; `object` is the default."""
    query = item.query
    return query.side if query is not None and (query.entity or query.side == "subject") else ""


# Write rules in words: "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]" (RuleRAG, 2024).


def write_rule(rule: Rule, phrases: Mapping[str, str]) -> str:
    """Write the rule in words, for prompts, searches and training data.

    `phrases` has the words for relations; one that is not among them is called by its name.
    """
    body = " and ".join(_atom(atom, phrases) for atom in rule.body)
    return f"{body} leads to {_atom(rule.head, phrases)}".lstrip()


def write_relation(relation: str, phrases: Mapping[str, str]) -> str:
    return phrases.get(relation) or phrase(relation)


def _atom(atom: Atom, phrases: Mapping[str, str]) -> str:
    return f"[{_term(atom.subject)}, {write_relation(atom.relation, phrases)}, {_term(atom.object)}]"


def _term(term: Term) -> str:
    return f"Entity{term + 1}" if isinstance(term, int) else format_name(term)


# Chain searches along the body of a rule: each search continues from the entity that the one before has found.

MOST_HOPS = 3
"""Atoms of a body that are searched for; the others of a longer one are not."""
_TIME = re.compile(r"\ATime \S+ ")
_POSSESSIVE = re.compile(r"['’]s\b")


class Hop(NamedTuple):
    """One atom to search for."""

    phrase: str
    """The words for its relation."""
    constants: tuple[str, ...] = ()
    """Entities that it names."""
    end: int | None = None
    """Where the chain comes to it: 0 at its subject, 1 at its object; None: it shares no term with those before."""


class ChainResult(NamedTuple):
    """The results of a chain of searches."""

    paths: tuple[tuple[Candidate, ...], ...]
    """Documents that belong together, best first: those of a chain from its first search to its last."""
    traces: tuple[Trace, ...]
    """Traces of the searches, in their order."""

    @property
    def candidates(self) -> list[Candidate]:
        """Return the documents of all paths, each once."""
        return keep_first_of_each((each for path in self.paths for each in path), attrgetter("document"))


class ChainPath(NamedTuple):
    """The state of a chain after one of its searches."""

    end: str
    """What the next search goes on from: the entity that the last document names; "": it names none."""
    is_question: bool = False
    """Whether `end` is a question, which names the entity somewhere."""
    candidates: tuple[Candidate, ...] = ()


def search_index(text: str, params: Params) -> Part[Trace]:
    """Search a query in the index that rules are searched in, or in both, fused.

    Raises:
        CallFailed: a search failed.
    """
    index = params.rulerag.index
    if index == "both":
        dense, sparse = yield make_searches(text, params)
        trace = make_fused_trace(FoundLists(require(dense), require(sparse)), params)
        # Reports hold the last order against the fused one, and rules have as many of these as there are rules.
        return replace(trace, candidates=tuple(replace(each, fused=None) for each in trace.candidates))
    (found,) = yield [make_search(text, index, params)]
    return make_single_trace(require(found), index, params)


def order_hops(rule: Rule, side: Side, phrases: Mapping[str, str]) -> tuple[Hop, ...]:
    """Order the body's atoms, starting with the one that contains the known entity.

    The known entity is the end of the head that is not asked for, and variable 0 if that is not known. Each atom comes
    after one that shares a term with it, if possible.
    """
    reached: set[Term] = {{"object": rule.head.subject, "subject": rule.head.object, "": 0}[side]}
    left, hops = list(rule.body), list[Hop]()
    while left and len(hops) < MOST_HOPS:
        atom = next((each for each in left if reached & {each.subject, each.object}), left[0])
        left.remove(atom)
        ends = (atom.subject, atom.object)
        end = next((at for at, term in enumerate(ends) if term in reached), None)
        constants = tuple(format_name(term) for term in ends if isinstance(term, str))
        hops.append(Hop(write_relation(atom.relation, phrases), constants, end))
        reached.update(ends)
    return tuple(hops)


def follow_chain(start: ChainPath, steps: Sequence[Hop], params: Params, library: Library) -> Part[ChainResult]:
    """Search for each atom, first from `start`, then from the entities that the `rulerag.width` best documents name.

    Only a path with a document for every atom is one: the rule applies to the entity.

    Raises:
        CallFailed: a search failed.
    """
    width, traces = params.rulerag.width, list[Trace]()
    paths = [start]
    for hop in steps:
        live = keep_first_of_each((path for path in paths if path.end), lambda path: path.end)[:width]
        found = yield from run_in_step([search_index(_query(path.end, hop), params) for path in live])
        traces += found
        grown = []
        for path, trace in zip(live, found, strict=True):
            ends = ((each, find_other_end(library[each.document].text, hop, path)) for each in trace.candidates)
            longer = [ChainPath(end, candidates=(*path.candidates, each)) for each, end in ends if end is not None]
            grown.append(longer[:width])
        paths = list(interleave(grown))
    return ChainResult(tuple(path.candidates for path in paths if path.candidates), tuple(traces))


def choose_start(item: Item, head: str) -> ChainPath:
    """Return the start of a chain: the item's entity, else the question without the words of the `head`."""
    if item.query is not None and item.query.entity:
        return ChainPath(format_name(item.query.entity))
    question_words, head_words = normalise_words(_POSSESSIVE.sub("", item.question)), normalise_words(head)
    at = next(
        (at for at in range(len(question_words)) if question_words[at : at + len(head_words)] == head_words),
        len(question_words),
    )
    return ChainPath(" ".join(question_words[:at] + question_words[at + len(head_words) :]), is_question=True)


def find_other_end(sentence: str, hop: Hop, known: ChainPath) -> str | None:
    """Return the entity to which the atom leads from the known one, according to a document.

    Of a fact of the atom's relation that is its other entity. Of another text that holds the relation's words it is
    what neither these nor the known end hold. None: the document does not say that the atom holds.
    """
    told, seen = _TIME.sub("", sentence.strip()).rstrip("."), normalise_words(known.end)
    ends = told.split(f" {hop.phrase} ")
    if len(ends) == 2:
        for at, words in enumerate(map(normalise_words, ends)):
            if hop.end in (at, None) and (contains_words(words, seen) if known.is_question else words == seen):
                return ends[1 - at]
        return None
    old = {*seen, *normalise_words(_query("", hop))}
    if not set(normalise_words(told)).issuperset(normalise_words(hop.phrase)):
        return None
    return " ".join(word for word in told.split() if not old.issuperset(normalise_words(word)))


def _query(end: str, hop: Hop) -> str:
    return " ".join((end, hop.phrase, *hop.constants)).strip()


# Make the search query for each rule: question and rule, or a query by the judge model (seed document 002).


class RuleQuery(NamedTuple):
    """The query for a rule."""

    text: str
    fallback: str | None = None
    """Why it is question and rule and not what the judge model was to write."""


def make_rule_queries(question: str, guidance: Guidance, params: Params) -> Generator[Yielded, Any, list[RuleQuery]]:
    """Make a query for each rule; the judge model is asked for all at once, and once for equal rules."""
    sentences = [write_rule(found.rule, guidance.phrases) for found in guidance.rules]
    if params.rulerag.query == "joined":
        return [_join(question, sentence) for sentence in sentences]
    distinct = list(dict.fromkeys(sentences))
    template, decoding = localise("rule-query", question), params.rulerag.decoding
    slots = ({"question": question, "rule": sentence} for sentence in distinct)
    replies = yield [Write(template=template, decoding=decoding, slots=each) for each in slots]
    queries = {}
    for sentence, reply in zip(distinct, replies, strict=True):
        written = read_rewrite(question, reply)
        if written.queries:
            queries[sentence] = RuleQuery(written.queries[0])
        else:
            queries[sentence] = _join(question, sentence, written.decision.fallback or written.decision.action)
    return [queries[sentence] for sentence in sentences]


def _join(question: str, sentence: str, fallback: str | None = None) -> RuleQuery:
    return RuleQuery(f"{question} {sentence}"[:MAX_QUESTION], fallback)


# Search by rules: with question and rule, and by a chain of searches along the body; then merge the lists.

RULE_STAGE = "rule"
"""Actions of the decision of each rule: it guided a `search`, or is only in the `prompt`."""


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
        return self.direct.traces + self.chained.traces


def search_by_rules(
    item: Item, guidance: Guidance, params: Params, library: Library
) -> Generator[Yielded, Any, Trace]:  # fmt: skip
    """Search by all rules side by side and merge the results, with a decision for each rule.

    Raises:
        CallFailed: a search failed.
    """
    phrases, side = guidance.phrases, get_asked_side(item)
    queries = yield from make_rule_queries(item.question, guidance, params)
    parts = [_search_once(query.text, params) for query in queries]
    for rule in (found.rule for found in guidance.rules):
        start = choose_start(item, write_relation(rule.head.relation, phrases))
        parts.append(follow_chain(start, order_hops(rule, side, phrases), params, library))
    if params.rulerag.question:
        parts.append(_search_once(item.question, params))
    brought = yield from run_in_step(parts)
    half = len(queries)
    lists = list(map(RuleList, guidance.rules, queries, brought[:half], brought[half : 2 * half]))
    merged = merge_rule_lists(lists, brought[2 * half :], params)
    decisions = []
    for each in lists:
        documents = [found.document for found in merged.candidates if _path(each.found) in (found.paths or ())]
        chained = {found.document for found in each.chained.candidates}
        detail = {
            **_describe_rule(each.found, phrases), "query": each.query.text, "documents": documents,
            "chained": [document for document in documents if document in chained],
        }  # fmt: skip
        decisions.append(Decision(stage=RULE_STAGE, action="search", detail=detail, fallback=each.query.fallback))
    return replace(merged, decisions=(*decisions, *merged.decisions))


def merge_rule_lists(lists: Sequence[RuleList], plain: Sequence[ChainResult], params: Params) -> Trace:
    """Merge at most `params.candidates` documents: those of the rules' chains take turns with those that the question
    itself found (`plain`, empty if it was not searched for); those of the rules' queries follow. Where the job follows
    no chains, or the judge model writes the queries, all take turns.

    With `rulerag.documents` k these are the union of the k best of each rule (seed document 002), in the same order.
    A candidate's `paths` tell at which rank which rules found it; its other ranks and scores are those of its first
    list.
    """
    named = [(_path(each.found), each.candidates) for each in lists]
    named += [("question", each.candidates) for each in plain]
    paths: dict[str, dict[str, int]] = {}
    for name, candidates in named:
        for rank, candidate in enumerate(candidates, start=1):
            paths.setdefault(candidate.document, {})[name] = rank
    chained, direct = [each.chained.paths for each in lists], [each.direct.paths for each in lists]
    first, then = [*chained, *(each.paths for each in plain)], direct
    if not params.rulerag.width or params.rulerag.query == "rewritten":
        first, then = [*first, *direct], []
    by_turns = [candidate for each in (first, then) for path in interleave(each) for candidate in path]
    most = params.rulerag.documents or params.candidates
    union = [each for each in by_turns if min(paths[each.document].values()) <= most]
    kept = keep_first_of_each(union, _document)[: params.candidates]
    traces = [trace for each in lists for trace in each.traces] + [trace for each in plain for trace in each.traces]
    decisions = [decision for trace in traces for decision in trace.decisions]
    return Trace(
        candidates=tuple(
            replace(each, rank=rank, paths=paths[each.document], score=None) for rank, each in enumerate(kept, start=1)
        ),
        duplicates=tuple(dict.fromkeys(hash_ for trace in traces for hash_ in trace.duplicates)),
        decisions=tuple(keep_first_of_each(decisions, repr)),
    )


def note_prompt_rules(guidance: Guidance) -> tuple[Decision, ...]:
    """Make the decisions for rules that are in the prompt but guide no search."""
    return tuple(
        Decision(stage=RULE_STAGE, action="prompt", detail=_describe_rule(found, guidance.phrases))
        for found in guidance.rules
    )


def _search_once(query: str, params: Params) -> Part[ChainResult]:
    trace = yield from search_index(query, params)
    return ChainResult(tuple((each,) for each in trace.candidates), (trace,))


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
