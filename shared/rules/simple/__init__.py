"""The four simple types of temporal rules (CountTRuCoLa, Gastinger et al. 2025).

What is said of the source is what its repository does (github.com/JuliaGast/counttrucola_submission). Our window holds
its last step: with 50, a body counts that held 50 steps before. The source asks for a distance below it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from shared.contracts.mining import TemporalSimple
from shared.contracts.rules import Atom, Rule
from shared.rules.graph import Graph
from shared.rules.simple.atoms import Names
from shared.rules.simple.constants import count_backward, count_forward, find_candidates
from shared.rules.simple.curve import DIGITS, fit
from shared.rules.simple.frequencies import ENTITY_WEIGHT, UNSEEN, Frequent, frequent_entities, frequent_partners
from shared.rules.simple.heads import Heads, heads_of
from shared.rules.simple.history import History, read
from shared.rules.simple.kinds import Kind
from shared.rules.simple.memory import memory_bytes
from shared.rules.simple.pairs import count_pairs
from shared.rules.simple.tally import Tally

__all__ = ["memory_bytes", "mine"]


def mine(graph: Graph, relation: str, mining: TemporalSimple) -> tuple[Rule, ...]:
    """The rules whose head is of `relation`: first those that predict objects, then subjects; each type by type.

    Raises:
        ValueError: the graph has no such relation, or no times.
    """
    if relation not in graph.relations:
        raise ValueError(f"the graph has no relation {relation!r}: name one of its {len(graph.relations)} relations")
    history, names = read(graph), Names(graph.entities, graph.relations)
    found: list[Rule] = []
    for link in (2 * graph.relations.index(relation), 2 * graph.relations.index(relation) + 1):
        heads = heads_of(history, link)
        if len(heads.target) >= mining.min_head_facts:
            found += _pairs(history, heads, names, mining)
            found += _constants(history, heads, names, mining)
            found += _frequent_entities(heads, names, mining)
            found += _frequent_partners(heads, names, mining)
    return tuple(found)


def _pairs(history: History, heads: Heads, names: Names, mining: TemporalSimple) -> Iterator[Rule]:
    tally = count_pairs(history, heads, mining.window)
    bodies = np.unique(tally.rule)
    head = names.atom(heads.link, 0, 1)
    atoms = [(head, names.atom(body, 0, 1)) for body in bodies.tolist()]
    return _curved("pair", atoms, tally.only(bodies), mining)


def _constants(history: History, heads: Heads, names: Names, mining: TemporalSimple) -> Iterator[Rule]:
    found = find_candidates(history, heads, mining.window, mining.min_entities)
    targets = [names.entities[target] for target in found.target.tolist()]
    links = history.link[found.anchor].tolist()
    ends = [names.entities[target] for target in history.target[found.anchor].tolist()]
    rules = list(zip(targets, links, ends, strict=True))
    for variable, count in ((0, count_forward), (1, count_backward)):
        for part, tally in count(history, heads, found, mining.window):
            atoms = [
                (names.atom(heads.link, variable, target), names.atom(link, variable, end))
                for target, link, end in rules[part]
            ]
            yield from _curved("constants", atoms, tally, mining)


def _curved(kind: Kind, atoms: Sequence[tuple[Atom, Atom]], tally: Tally, mining: TemporalSimple) -> Iterator[Rule]:
    """Rules of head and body whose confidence is a curve; the tally numbers them by their places."""
    curves = np.column_stack(fit(tally, len(atoms), mining.window, mining.unseen_negatives)).tolist()
    support = np.bincount(tally.rule, tally.followed, len(atoms)).astype(int).tolist()
    size = np.bincount(tally.rule, tally.held, len(atoms)).astype(int).tolist()
    for (head, body), right, held, curve in zip(atoms, support, size, curves, strict=True):
        if right >= mining.min_support:
            yield _rule(kind, head, body, right, held, curve)


def _frequent_entities(heads: Heads, names: Names, mining: TemporalSimple) -> Iterator[Rule]:
    body = Atom(names.relations[heads.link // 2], 2, 3)
    for _, target, support, size in _rows(frequent_entities(heads, mining.min_support)):
        head = names.atom(heads.link, 0, names.entities[target])
        yield _rule("frequent entity", head, body, support, size, (ENTITY_WEIGHT * support / (size + UNSEEN),))


def _frequent_partners(heads: Heads, names: Names, mining: TemporalSimple) -> Iterator[Rule]:
    for source, target, support, size in _rows(frequent_partners(heads, mining.min_support)):
        head = names.atom(heads.link, names.entities[source], names.entities[target])
        body = names.atom(heads.link, names.entities[source], 2)
        yield _rule("frequent partner", head, body, support, size, (support / (size + UNSEEN),))


def _rows(columns: Frequent) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _rule(kind: Kind, head: Atom, body: Atom, support: int, size: int, curve: Sequence[float]) -> Rule:
    return Rule(
        head=head,
        body=(body,),
        support=support,
        body_size=size,
        confidence=round(support / size, DIGITS),
        kind=kind,
        curve=tuple(round(part, DIGITS) for part in curve),
    )
