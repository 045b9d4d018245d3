"""Small temporal graphs, and rules as the plain implementation of TLogic has them."""

from collections.abc import Iterable, Sequence

import numpy as np

from shared.contracts.rules import Rule
from shared.rules.graph import Graph
from shared.rules.tlogic.paths import path_of
from tests.unit.shared.rules.plain_tlogic import PlainRule, Quad


def make_graph(quads: Iterable[Quad], relations: Sequence[str] = ("r0", "r1", "r2")) -> Graph:
    """The quads as a graph of entities e0, e1 and so on."""
    table = np.array([*quads], np.int64).reshape(-1, 4)
    entities = [f"e{number}" for number in range(int(table[:, [0, 2]].max(initial=0)) + 1)]
    return Graph(table[:, :3].astype(np.int32), table[:, 3].copy(), entities, relations)


def draw_quads(seed: int, facts: int, entities: int = 5, relations: int = 3, times: int = 6) -> list[Quad]:
    """Distinct random quads; loops and several facts at one time are among them."""
    rows = np.random.default_rng(seed).integers((entities, relations, entities, times), size=(facts, 4)).tolist()
    return [*dict.fromkeys((s, r, o, t) for s, r, o, t in rows)]


def toy(repeated_at: int) -> list[Quad]:
    """The toy of the reference: visits at 0, 2, ..., 10, signs one step later except at 9; e0 visits e1 twice."""
    quads: list[Quad] = []
    for time in range(0, 12, 2):
        subject = 0 if time in {0, repeated_at} else time
        quads.append((subject, 0, subject + 1, time))
        if time != 8:
            quads.append((subject, 1, subject + 1, time + 1))
    return quads


def plain_rule(rule: Rule, relations: Sequence[str]) -> PlainRule:
    """The same rule with `~` for inverse relations."""
    path = path_of(rule)
    variables = [0, *(variable for _, variable in path)]
    numbers = [relations.index(name) if forward else ~relations.index(name) for (name, forward), _ in path]
    head = relations.index(rule.head.relation)
    is_plain = len({*variables}) == len(variables)
    return PlainRule(
        head if rule.head.subject == 0 else ~head,
        tuple(numbers),
        () if is_plain else tuple(variables.index(variable) for variable in variables),
        rule.confidence,
        rule.support,
        rule.body_size,
    )
