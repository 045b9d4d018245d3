"""Rules of TLogic applied: which entities answer a query, by what happened before it (Liu et al. 2022, section 4.2)."""

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from operator import neg
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from shared.contracts.mining import Count, Share
from shared.contracts.rules import Atom, Rule
from shared.rules.evaluation import Query
from shared.rules.graph import Graph
from shared.rules.tlogic.edges import Edges, Integers
from shared.rules.tlogic.ends import Ends, Turns, turns_of


class Application(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rules are applied; the defaults are those of TLogic's code."""

    window: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Only facts of so many steps before the query count; with 0 all earlier ones."""
    top_k: Count = 20
    """No further rule is applied once so many of the best candidates differ in their scores."""
    min_confidence: Share = 0.01
    min_body_size: Count = 2
    share: Share = 0.5
    """Share of the confidence in a score; the rest is how recent the body is."""
    decay: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    """A body that began n steps before the query counts exp(-decay · n)."""


class Applied(NamedTuple):
    """A rule for the queries of its head."""

    turns: Turns
    confidence: float


class Predictor:
    """Answers queries over a graph, of which each sees only what is earlier than itself."""

    def __init__(self, rules: Iterable[Rule], graph: Graph, application: Application | None = None) -> None:
        """Rules that name a relation that the graph lacks are left out.

        Raises:
            ValueError: the graph has no times or no facts, or a body is no path, as those of TLogic are.
        """
        self._application = application or Application()
        self._edges = Edges(graph)
        self._rules = _by_head(rules, graph, self._application)

    def predict(self, query: Query) -> Mapping[int, float]:
        """The score of each candidate, in [0, 1]: a noisy-or over the rules that lead to it."""
        ends = Ends(self._edges, query.entity, *self._window(query.time))
        scores: defaultdict[int, list[float]] = defaultdict(list)
        for rule in self._rules.get((query.relation, query.forward), ()):
            entities, first = ends.of(rule.turns)
            for entity, score in zip(entities.tolist(), self._scores(rule, first, query.time), strict=True):
                insort(scores[entity], score, key=neg)
            if len(entities) and _are_settled(scores, self._application.top_k):
                break
        return {entity: 1 - prod(1 - score for score in found) for entity, found in scores.items()}

    def _scores(self, rule: Applied, first: Integers, time: int) -> list[float]:
        """Of the candidates of a rule, by the ranks of their bodies' first facts."""
        age = float(time) - self._edges.times[first].astype(np.float64)
        share, decay = self._application.share, self._application.decay
        scores: list[float] = (share * rule.confidence + (1 - share) * np.exp(-decay * age)).tolist()
        return scores

    def _window(self, time: int) -> tuple[int, int]:
        """The ranks that a query sees, from the first (included) to the last (excluded)."""
        window, times = self._application.window, self._edges.times
        begin = max(time - window, int(times[0])) if window else int(times[0])
        return int(np.searchsorted(times, min(begin, int(times[-1]) + 1))), int(np.searchsorted(times, time))


def _by_head(
    rules: Iterable[Rule], graph: Graph, application: Application
) -> Mapping[tuple[int, bool], Sequence[Applied]]:
    """The rules that may be applied to queries of a relation and direction, the most confident first."""
    numbers = {relation: number for number, relation in enumerate(graph.relations)}
    found: defaultdict[tuple[int, bool], list[Applied]] = defaultdict(list)
    for rule in sorted(rules, key=lambda rule: -rule.confidence):
        is_kept = rule.confidence >= application.min_confidence and rule.body_size >= application.min_body_size
        if is_kept and all(atom.relation in numbers for atom in (rule.head, *rule.body)):
            for forward in _directions(rule.head):
                turns = turns_of(rule, numbers)
                found[numbers[rule.head.relation], forward].append(Applied(turns, rule.confidence))
    return found


def _directions(head: Atom) -> Iterable[bool]:
    """Which queries a head answers: forward, backward, or where both of its terms are equal both."""
    return [forward for forward, start in ((True, head.subject), (False, head.object)) if start == 0]


def _are_settled(scores: Mapping[int, list[float]], top_k: int) -> bool:
    """Whether the best candidates, by their descending scores, are told apart by these."""
    if len(scores) < top_k:
        return False
    best = heapq.nlargest(top_k, scores.values())
    return all(one != other for one, other in pairwise(best))
