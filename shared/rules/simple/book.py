"""Rules as numbers of a history, filed by the questions that they answer: a link, and the entity that it leads from."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from shared.contracts.rules import Rule, Term
from shared.rules.graph import Graph
from shared.rules.simple.atoms import link_of, target_of
from shared.rules.simple.curve import Curves
from shared.rules.simple.history import History, Numbers

ANYONE = -1
Key = tuple[Literal["pair", "forward", "backward", "frequent"], int, int]
"""How a rule is applied, and the link and entity of the questions that it answers."""


class Book:
    """The rules of a bank that can hold in a graph; those that name what it does not have are left out."""

    curves: Curves
    """By the rule's number; a frequency is the alpha of a constant curve."""

    def __init__(self, rules: Iterable[Rule], graph: Graph, history: History) -> None:
        """Files the rules.

        Raises:
            ValueError: a rule is of another miner, or not of the shape of its kind.
        """
        self._entities: Mapping[Term, int] = {name: number for number, name in enumerate(graph.entities)}
        self._relations = {name: number for number, name in enumerate(graph.relations)}
        ends = zip(history.link.tolist(), history.target.tolist(), strict=True)
        self._anchors = {end: number for number, end in enumerate(ends)}
        rows: defaultdict[Key, list[tuple[int, ...]]] = defaultdict(list)
        curves: list[tuple[float, ...]] = []
        for rule in rules:
            filed = self._file(rule)
            if filed is not None:
                rows[filed[0]].append((*filed[1], len(curves)))
                curves.append(rule.curve if len(rule.curve) > 1 else (0, *rule.curve, 0, 0, 0, 0, 1))
        self._shelves = {key: np.array(sorted(found), np.int64).T for key, found in rows.items()}
        self.curves = Curves(*np.array(curves, float).reshape(-1, len(Curves._fields)).T)

    def find(self, key: Key) -> Numbers | None:
        """The rules under a key, each a column sorted by its first row; None where there are none.

        Rows of `pair`: the body's link, and the rule. Of `forward`: the body's anchor, the entity predicted, and the
        rule. Of `backward`: the body's anchor, and the rule. Of `frequent`: the entity predicted, and the rule.
        """
        return self._shelves.get(key)

    def _file(self, rule: Rule) -> tuple[Key, tuple[int, ...]] | None:
        """Where a rule belongs, and its column but for its number."""
        if rule.kind and (len(rule.body) != 1 or len(rule.curve) not in (1, len(Curves._fields))):
            raise ValueError(f"a rule of kind {rule.kind!r} has one atom and 1 or {len(Curves._fields)} coefficients")
        match rule.kind:
            case "pair":
                return self._file_pair(rule)
            case "constants":
                return self._file_constants(rule)
            case "frequent entity" | "frequent partner":
                return self._file_frequent(rule)
        raise ValueError(f"a rule of kind {rule.kind!r} is not of temporal-simple: apply it by its own miner's means")

    def _file_pair(self, rule: Rule) -> tuple[Key, tuple[int, ...]] | None:
        head, body = link_of(rule.head, 0, self._relations), link_of(rule.body[0], 0, self._relations)
        return None if head is None or body is None else (("pair", head, ANYONE), (body,))

    def _file_constants(self, rule: Rule) -> tuple[Key, tuple[int, ...]] | None:
        variable = next((term for term in (rule.head.subject, rule.head.object) if isinstance(term, int)), None)
        if variable is None:
            raise ValueError(f"a rule of kind 'constants' has a variable in its head: {rule.head}")
        head, body = link_of(rule.head, variable, self._relations), link_of(rule.body[0], variable, self._relations)
        if head is None or body is None:
            return None
        target = self._entities.get(target_of(rule.head, head))
        anchor = self._anchors.get((body, self._entities.get(target_of(rule.body[0], body), ANYONE)))
        if target is None or anchor is None:
            return None
        if variable == 0:
            return ("forward", head, ANYONE), (anchor, target)
        return ("backward", head ^ 1, target), (anchor,)

    def _file_frequent(self, rule: Rule) -> tuple[Key, tuple[int, ...]] | None:
        body = rule.body[0]
        known = next((term for term in (body.subject, body.object) if isinstance(term, str)), 0)
        link = link_of(rule.head if known == 0 else body, known, self._relations)
        asked = ANYONE if known == 0 else self._entities.get(known)
        if link is None or asked is None:
            return None
        target = self._entities.get(target_of(rule.head, link))
        return None if target is None else (("frequent", link, asked), (target,))
