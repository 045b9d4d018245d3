"""TLogic once more, in plain loops, from the reference's description: nothing of `shared.rules` is used.

A quad is (subject, relation, object, time); the inverse of relation r is `~r`. A rule's `equal` says for each place on
its path the first place with the same entity, where two places are equal at all, and is empty otherwise.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Quad = tuple[int, int, int, int]


class PlainRule(NamedTuple):
    """What a rule is, and its three figures."""

    head: int
    body: tuple[int, ...]
    equal: tuple[int, ...]
    confidence: float
    support: int
    size: int


class Plain:
    """All quads in both directions."""

    def __init__(self, quads: Sequence[Quad]) -> None:
        self.by_relation: dict[int, list[Quad]] = defaultdict(list)
        self.by_entity: dict[int, list[Quad]] = defaultdict(list)
        self.by_both: dict[tuple[int, int], list[Quad]] = defaultdict(list)
        for s, r, o, t in quads:
            for quad in ((s, r, o, t), (o, ~r, s, t)):
                self.by_relation[quad[1]].append(quad)
                self.by_entity[quad[0]].append(quad)
                self.by_both[quad[0], quad[1]].append(quad)

    def learn(
        self, heads: Iterable[int], rng: random.Random, walks: int = 200, samples: int = 500, uniform: bool = False
    ) -> dict[int, list[PlainRule]]:
        """The rules of each head, by descending confidence."""
        rules: dict[int, list[PlainRule]] = {}
        for head in heads:
            shapes = []
            for length in (1, 2, 3):
                for _ in range(walks):
                    walk = self.walk(head, length, rng, uniform)
                    if walk and (shape := shape_of(walk)) not in shapes:
                        shapes.append(shape)
            found = [PlainRule(head, *shape, *self.estimate(head, *shape, samples, rng)) for shape in shapes]
            rules[head] = sorted((rule for rule in found if rule.confidence), key=lambda rule: -rule.confidence)
        return rules

    def walk(self, head: int, length: int, rng: random.Random, uniform: bool) -> list[Quad]:
        """A cyclic walk back in time, empty where it got lost."""
        path = [rng.choice(self.by_relation[head])]
        for step in range(1, length + 1):
            s, r, o, t = path[-1]
            edges = [edge for edge in self.by_entity[o] if (edge[3] < t if step == 1 else edge[3] <= t)]
            if step > 1:
                edges = [edge for edge in edges if edge != (o, ~r, s, t)]
            if step == length:
                edges = [edge for edge in edges if edge[2] == path[0][0]]
            if not edges:
                return []
            weights = [1.0 if uniform else math.exp(edge[3] - t) for edge in edges]
            path.append(rng.choices(edges, weights if sum(weights) else None)[0])
        return path

    def estimate(
        self, head: int, body: tuple[int, ...], equal: tuple[int, ...], samples: int, rng: random.Random
    ) -> tuple[float, int, int]:
        """Confidence, support and size of distinct sampled bodies."""
        bodies = {sampled for _ in range(samples) if (sampled := self.sample(body, equal, rng))}
        support = sum(self.follows(head, sampled) for sampled in bodies)
        return (round(support / len(bodies), 6) if bodies else 0.0), support, len(bodies)

    def sample(self, body: tuple[int, ...], equal: tuple[int, ...], rng: random.Random) -> tuple[Quad, ...]:
        """One body, empty where none continues or its entities are not equal as they should be."""
        path = [rng.choice(self.by_relation[body[0]])]
        for relation in body[1:]:
            edges = [edge for edge in self.by_both.get((path[-1][2], relation), ()) if edge[3] >= path[-1][3]]
            if not edges:
                return ()
            path.append(rng.choice(edges))
        return tuple(path) if not equal or equalities(path) == equal else ()

    def bodies(self, body: tuple[int, ...], equal: tuple[int, ...]) -> Iterator[tuple[Quad, ...]]:
        """All of them."""
        paths: list[tuple[Quad, ...]] = [(edge,) for edge in self.by_relation[body[0]]]
        for relation in body[1:]:
            paths = [
                (*path, edge)
                for path in paths
                for edge in self.by_both.get((path[-1][2], relation), ())
                if edge[3] >= path[-1][3]
            ]
        return (path for path in paths if not equal or equalities(path) == equal)

    def follows(self, head: int, body: Sequence[Quad]) -> bool:
        """Whether a fact of the head comes strictly after the body."""
        facts = self.by_both.get((body[0][0], head), ())
        return any(edge[2] == body[-1][2] and edge[3] > body[-1][3] for edge in facts)

    def predict(self, rules: Sequence[PlainRule], entity: int, time: int, window: int = 0) -> dict[int, float]:
        """Candidates of (entity, head, ?, time); the rules stand by descending confidence."""
        scores: dict[int, list[float]] = defaultdict(list)
        for rule in rules:
            if rule.confidence < 0.01 or rule.size < 2:
                continue
            found = self.candidates(rule, entity, time, window)
            for candidate, first in found.items():
                scores[candidate].append(0.5 * rule.confidence + 0.5 * math.exp(0.1 * (first - time)))
            best = sorted((sorted(values, reverse=True) for values in scores.values()), reverse=True)[:20]
            if found and sum(place == 0 or best[place] != best[place - 1] for place in range(len(best))) >= 20:
                break
        return {candidate: 1 - math.prod(1 - score for score in values) for candidate, values in scores.items()}

    def candidates(self, rule: PlainRule, entity: int, time: int, window: int) -> dict[int, int]:
        """Where bodies lead within the window: the latest time of a body's first quad by candidate."""
        states: dict[tuple[tuple[int, ...], int], int] = {((entity,), -(10**30)): 0}  # (entities, last time): first
        for relation in rule.body:
            following: dict[tuple[tuple[int, ...], int], int] = {}
            for (entities, last), first in states.items():
                for _, _, o, t in self.by_both.get((entities[-1], relation), ()):
                    if last <= t < time and (not window or t >= time - window):
                        state = ((*entities, o) if rule.equal else (o,), t)
                        begun = t if last == -(10**30) else first
                        following[state] = max(following.get(state, begun), begun)
            states = following
        found: dict[int, int] = {}
        for (entities, _), first in states.items():
            if all(entities[place] == entities[other] for place, other in enumerate(rule.equal)):
                found[entities[-1]] = max(found.get(entities[-1], first), first)
        return found


def shape_of(walk: Sequence[Quad]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Inverse relations of all but the first edge, reversed, and the equalities of their entities."""
    back = [(o, ~r, s, t) for s, r, o, t in reversed(walk[1:])]
    return tuple(r for _, r, _, _ in back), equalities(back)


def equalities(path: Sequence[Quad]) -> tuple[int, ...]:
    """See the module."""
    entities = [path[0][0], *(edge[2] for edge in path)]
    return tuple(entities.index(entity) for entity in entities) if len(set(entities)) < len(entities) else ()
