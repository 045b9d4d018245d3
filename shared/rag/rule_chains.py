"""Chains of searches: for a body of several atoms each search goes on from the entity that the one before has found."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shared.contracts.params import Params
from shared.contracts.replies import require
from shared.contracts.rules import Atom, Rule, Term
from shared.contracts.samples import Candidate, Item, Library, Trace
from shared.rag.interleaving import first_of_each, interleaved
from shared.rag.lockstep import Part, in_step
from shared.rag.provenance import Found, fused_trace, search, searches, single_trace
from shared.rag.rule_choice import Side
from shared.rag.rule_sentences import relation_words
from shared.rag.wording import stand_in, words
from shared.rules.sentences import shown

MOST_HOPS = 3
"""Atoms of a body that are searched for; the others of a longer one are not."""
_TIME = re.compile(r"\ATime \S+ ")
_POSSESSIVE = re.compile(r"['’]s\b")


class Hop(NamedTuple):
    """One atom to be searched for."""

    phrase: str
    """The words for its relation."""
    constants: tuple[str, ...] = ()
    """Entities that it names."""


class Brought(NamedTuple):
    """What searches have brought."""

    candidates: tuple[Candidate, ...]
    """Each document once, best first."""
    traces: tuple[Trace, ...]
    """Of the searches."""


class _Path(NamedTuple):
    end: str
    """What the next search goes on from: the entity that the last document names; "": it names none."""
    candidates: tuple[Candidate, ...] = ()


def index_search(text: str, params: Params) -> Part[Trace]:
    """What a query finds in the index that rules are searched in, or in both, fused.

    Raises:
        CallFailed: a search failed.
    """
    index = params.rulerag.index
    if index == "both":
        dense, sparse = yield searches(text, params)
        trace = fused_trace(Found(require(dense), require(sparse)), params)
        # Reports hold the last order against the fused one, and rules have as many of these as there are rules.
        return replace(trace, candidates=tuple(replace(each, fused=None) for each in trace.candidates))
    (found,) = yield [search(text, index, params)]
    return single_trace(require(found), index, params)


def hops(rule: Rule, side: Side, phrases: Mapping[str, str]) -> tuple[Hop, ...]:
    """The body's atoms, from the one that names the known entity on; none where there is one atom alone.

    The known entity is the end of the head that is not asked for, and variable 0 where that is not known.
    """
    if len(rule.body) < 2:
        return ()
    known: Term = {"object": rule.head.subject, "subject": rule.head.object, "": 0}[side]
    return tuple(_hop(atom, phrases) for atom in _in_order(rule.body, known)[:MOST_HOPS])


def chain(start: str, steps: Sequence[Hop], params: Params, library: Library) -> Part[Brought]:
    """Search for each atom, on from `start`, then from what the `rulerag.width` best documents of the last search name.

    First come the documents of the best path, from its first to its last, then those of the next one.

    Raises:
        CallFailed: a search failed.
    """
    width, traces = params.rulerag.width, list[Trace]()
    paths = [_Path(start)]
    for hop in steps:
        live = first_of_each((path for path in paths if path.end), lambda path: path.end)[:width]
        found = yield from in_step([index_search(_query(path.end, hop), params) for path in live])
        traces += found
        grown = [
            [_grown(path, candidate, hop, library) for candidate in trace.candidates[:width]]
            for path, trace in zip(live, found, strict=True)
        ]
        if not any(grown):
            break
        paths = list(interleaved(grown))
    documents = (candidate for path in paths for candidate in path.candidates)
    return Brought(tuple(first_of_each(documents, lambda each: each.document)), tuple(traces))


def start_of(item: Item, head: str) -> str:
    """What a chain begins with: the entity that the item names, else the question without the words of the `head`."""
    if item.query is not None and item.query.entity:
        return shown(item.query.entity)
    asked, said = words(_POSSESSIVE.sub("", item.question)), words(head)
    at = next((at for at in range(len(asked)) if asked[at : at + len(said)] == said), len(asked))
    return " ".join(asked[:at] + asked[at + len(said) :])


def other_end(sentence: str, hop: Hop, known: str) -> str:
    """The entity of a fact's sentence that is not in `known`, which names an entity or is a question.

    Of a text that is no sentence of the atom: its words that are neither in the atom nor in `known`.
    """
    told = _TIME.sub("", sentence.strip()).rstrip(".")
    ends, seen = told.split(f" {hop.phrase} "), words(known)
    new = [end for end in ends if not stand_in(words(end), seen)]
    if len(ends) == 2 and len(new) == 1:
        return new[0]
    old = {*seen, *words(_query("", hop))}
    return " ".join(word for word in told.split() if not old.issuperset(words(word)))


def _in_order(body: Sequence[Atom], known: Term) -> list[Atom]:
    """Each atom after one that shares a term with it, as far as that is possible."""
    left, reached, order = list(body), {known}, list[Atom]()
    while left:
        atom = next((each for each in left if reached & {each.subject, each.object}), left[0])
        left.remove(atom)
        order.append(atom)
        reached |= {atom.subject, atom.object}
    return order


def _hop(atom: Atom, phrases: Mapping[str, str]) -> Hop:
    constants = (shown(term) for term in (atom.subject, atom.object) if isinstance(term, str))
    return Hop(relation_words(atom.relation, phrases), tuple(constants))


def _query(end: str, hop: Hop) -> str:
    return " ".join((end, hop.phrase, *hop.constants)).strip()


def _grown(path: _Path, candidate: Candidate, hop: Hop, library: Library) -> _Path:
    end = other_end(library[candidate.document].text, hop, path.end)
    return _Path(end, (*path.candidates, candidate))
