"""Chains of searches: for a body of several atoms each search goes on from the entity that the one before has found."""

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
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
    end: int | None = None
    """Where the chain comes to it: 0 at its subject, 1 at its object; None: it shares no term with those before."""


class Brought(NamedTuple):
    """What searches have brought."""

    paths: tuple[tuple[Candidate, ...], ...]
    """Documents that belong together, best first: those of a chain from its first search to its last."""
    traces: tuple[Trace, ...]
    """Of the searches."""

    @property
    def candidates(self) -> list[Candidate]:
        """Of all paths, each document once."""
        return first_of_each((each for path in self.paths for each in path), attrgetter("document"))


class Path(NamedTuple):
    """How far a chain has come."""

    end: str
    """What the next search goes on from: the entity that the last document names; "": it names none."""
    is_question: bool = False
    """Whether `end` is a question, which names the entity somewhere."""
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
    """The body's atoms, from the one that names the known entity on.

    The known entity is the end of the head that is not asked for, and variable 0 where that is not known.
    """
    known: Term = {"object": rule.head.subject, "subject": rule.head.object, "": 0}[side]
    return tuple(_hop(atom, end, phrases) for atom, end in _in_order(rule.body, known)[:MOST_HOPS])


def chain(start: Path, steps: Sequence[Hop], params: Params, library: Library) -> Part[Brought]:
    """Search for each atom, on from `start`, then from what the `rulerag.width` best documents of the last search name.

    Only a path with a document for every atom is one: the rule applies to the entity.

    Raises:
        CallFailed: a search failed.
    """
    width, traces = params.rulerag.width, list[Trace]()
    paths = [start]
    for hop in steps:
        live = first_of_each((path for path in paths if path.end), lambda path: path.end)[:width]
        found = yield from in_step([index_search(_query(path.end, hop), params) for path in live])
        traces += found
        grown = [_grown(path, trace, hop, library)[:width] for path, trace in zip(live, found, strict=True)]
        paths = list(interleaved(grown))
    return Brought(tuple(path.candidates for path in paths if path.candidates), tuple(traces))


def start_of(item: Item, head: str) -> Path:
    """What a chain begins with: the entity that the item names, else the question without the words of the `head`."""
    if item.query is not None and item.query.entity:
        return Path(shown(item.query.entity))
    asked, said = words(_POSSESSIVE.sub("", item.question)), words(head)
    at = next((at for at in range(len(asked)) if asked[at : at + len(said)] == said), len(asked))
    return Path(" ".join(asked[:at] + asked[at + len(said) :]), is_question=True)


def other_end(sentence: str, hop: Hop, known: Path) -> str | None:
    """What a document says that the atom leads to from the entity that is known.

    Of a fact of the atom's relation that is its other entity. Of another text that holds the relation's words it is
    what neither these nor the known end hold. None: the document does not say that the atom holds.
    """
    told, seen = _TIME.sub("", sentence.strip()).rstrip("."), words(known.end)
    ends = told.split(f" {hop.phrase} ")
    if len(ends) == 2:
        at = next((at for at in (0, 1) if hop.end in (at, None) and _is_known(ends[at], seen, known)), None)
        return None if at is None else ends[1 - at]
    old = {*seen, *words(_query("", hop))}
    if not set(words(told)).issuperset(words(hop.phrase)):
        return None
    return " ".join(word for word in told.split() if not old.issuperset(words(word)))


def _is_known(end: str, seen: Sequence[str], known: Path) -> bool:
    return stand_in(words(end), seen) if known.is_question else words(end) == seen


def _in_order(body: Sequence[Atom], known: Term) -> list[tuple[Atom, int | None]]:
    """Each atom after one that shares a term with it, as far as that is possible, and at which end it does."""
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
    return Hop(relation_words(atom.relation, phrases), tuple(constants), end)


def _query(end: str, hop: Hop) -> str:
    return " ".join((end, hop.phrase, *hop.constants)).strip()


def _grown(path: Path, found: Trace, hop: Hop, library: Library) -> list[Path]:
    """The path with each document that says that the atom holds."""
    ends = ((each, other_end(library[each.document].text, hop, path)) for each in found.candidates)
    return [Path(end, candidates=(*path.candidates, each)) for each, end in ends if end is not None]
