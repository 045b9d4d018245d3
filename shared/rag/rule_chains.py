"""Chain searches along the body of a rule: each search continues from the entity that the one before has found."""

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from shared.params import Params
from shared.rag.interleaving import interleave, keep_first_of_each
from shared.rag.lockstep import Part, run_in_step
from shared.rag.provenance import FoundLists, make_fused_trace, make_search, make_searches, make_single_trace
from shared.rag.rule_choice import Side
from shared.rag.rule_sentences import write_relation
from shared.rag.wording import contains_words, normalise_words
from shared.replies import Atom, Rule, Term, require
from shared.rules.sentences import shown
from shared.samples import Candidate, Item, Library, Trace

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

    The known entity is the end of the head that is not asked for, and variable 0 if that is not known.
    """
    known: Term = {"object": rule.head.subject, "subject": rule.head.object, "": 0}[side]
    return tuple(_hop(atom, end, phrases) for atom, end in _order_atoms(rule.body, known)[:MOST_HOPS])


def follow_chain(start: ChainPath, steps: Sequence[Hop], params: Params, library: Library) -> Part[ChainResult]:
    """Search for each atom, first from `start`, then from what the `rulerag.width` best documents name.

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
        grown = [_grow(path, trace, hop, library)[:width] for path, trace in zip(live, found, strict=True)]
        paths = list(interleave(grown))
    return ChainResult(tuple(path.candidates for path in paths if path.candidates), tuple(traces))


def choose_start(item: Item, head: str) -> ChainPath:
    """Return what a chain begins with: the item's entity, else the question without the words of the `head`."""
    if item.query is not None and item.query.entity:
        return ChainPath(shown(item.query.entity))
    question_words, head_words = normalise_words(_POSSESSIVE.sub("", item.question)), normalise_words(head)
    at = next(
        (at for at in range(len(question_words)) if question_words[at : at + len(head_words)] == head_words),
        len(question_words),
    )
    return ChainPath(" ".join(question_words[:at] + question_words[at + len(head_words) :]), is_question=True)


def find_other_end(sentence: str, hop: Hop, known: ChainPath) -> str | None:
    """Return what the atom leads to from the known entity, according to a document.

    Of a fact of the atom's relation that is its other entity. Of another text that holds the relation's words it is
    what neither these nor the known end hold. None: the document does not say that the atom holds.
    """
    told, seen = _TIME.sub("", sentence.strip()).rstrip("."), normalise_words(known.end)
    ends = told.split(f" {hop.phrase} ")
    if len(ends) == 2:
        at = next((at for at in (0, 1) if hop.end in (at, None) and _is_known(ends[at], seen, known)), None)
        return None if at is None else ends[1 - at]
    old = {*seen, *normalise_words(_query("", hop))}
    if not set(normalise_words(told)).issuperset(normalise_words(hop.phrase)):
        return None
    return " ".join(word for word in told.split() if not old.issuperset(normalise_words(word)))


def _is_known(end: str, seen: Sequence[str], known: ChainPath) -> bool:
    return contains_words(normalise_words(end), seen) if known.is_question else normalise_words(end) == seen


def _order_atoms(body: Sequence[Atom], known: Term) -> list[tuple[Atom, int | None]]:
    """Put each atom after one that shares a term with it, if possible, with the end that they share."""
    left, reached, order = list(body), {known}, list[tuple[Atom, int | None]]()
    while left:
        atom = next((each for each in left if reached & {each.subject, each.object}), left[0])
        left.remove(atom)
        ends = (at for at, term in enumerate((atom.subject, atom.object)) if term in reached)
        order.append((atom, next(ends, None)))
        reached |= {atom.subject, atom.object}
    return order


def _hop(atom: Atom, end: int | None, phrases: Mapping[str, str]) -> Hop:
    constants = (shown(term) for term in (atom.subject, atom.object) if isinstance(term, str))
    return Hop(write_relation(atom.relation, phrases), tuple(constants), end)


def _query(end: str, hop: Hop) -> str:
    return " ".join((end, hop.phrase, *hop.constants)).strip()


def _grow(path: ChainPath, found: Trace, hop: Hop, library: Library) -> list[ChainPath]:
    """Extend the path by each document that says that the atom holds."""
    ends = ((each, find_other_end(library[each.document].text, hop, path)) for each in found.candidates)
    return [ChainPath(end, candidates=(*path.candidates, each)) for each, end in ends if end is not None]
