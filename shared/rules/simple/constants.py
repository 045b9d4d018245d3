"""Rules of kind `constants`: who was linked to one entity will be linked to another (the source's c-rules).

`head(0, c)` follows `body(0, d)` for a question about entity 0; `head(1, c)` follows `body(1, d)` for a question about
c, which asks for entity 1 (the source's forward and backward rules). Both are followed in the same examples, and held
in others: in questions about entities that d was linked to, or in such entities at the step of a question about c.

The source samples candidates at random; ours are all whose body and head met in `min_entities` entities.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.simple.heads import Heads, examples
from shared.rules.simple.history import History, Numbers, portions, spread
from shared.rules.simple.tally import Counter, Tally, joined, stacked

Portion = tuple[slice, Tally]
"""Neighbouring candidates, and the examples of each, numbered from 0."""


class Candidates(NamedTuple):
    """Rules of a head's link, sorted by target, then anchor."""

    target: Numbers
    """(rules,): the head's entity, c."""
    anchor: Numbers
    """(rules,): the body's link and entity, d."""
    followed: Tally
    """The examples that the head follows."""


def find_candidates(history: History, heads: Heads, window: int, min_entities: int) -> Candidates:
    """The rules whose body and head met in enough entities."""
    wide = np.bincount(history.anchor, minlength=len(history.link)) >= min_entities
    targets, begin, facts = np.unique(heads.target, return_index=True, return_counts=True)
    targets, begin, end = (part[facts >= min_entities] for part in (targets, begin, begin + facts))
    first, last = history.within(history.by_entity, heads.source, heads.at, window)
    rows = np.cumsum([0, *(last - first)])
    anchors, found = len(wide), [(np.empty(0, np.int64), Counter(window).tally())]
    for part in portions(rows[begin], rows[end]):
        rules, followed = _met(history, heads, spread(begin[part], end[part]), wide, Counter(window), min_entities)
        found.append((targets[part][rules // anchors] * anchors + rules % anchors, followed))
    keys, tallies = zip(*found, strict=True)
    rules = np.concatenate(keys)
    return Candidates(rules // anchors, rules % anchors, stacked(tallies, [len(part) for part in keys]))


def _met(
    history: History,
    heads: Heads,
    facts: tuple[Numbers, Numbers],
    wide: NDArray[np.bool_],
    counter: Counter,
    min_entities: int,
) -> tuple[Numbers, Tally]:
    """Candidates, as number of target * anchors + anchor, and where they are followed.

    `facts` are the number of the target, counted from 0 in this portion, and the place in `heads`.
    """
    number, fact = facts
    trails, met = len(history.anchor), np.empty(0, np.int64)
    for found in examples(history, history.by_entity, heads.source[fact], heads.at[fact], counter.window):
        kept = found.where(wide[history.anchor[found.trail]])
        target = number[kept.owner]
        met = np.union1d(met, target * trails + kept.trail)
        rule = target * len(wide) + history.anchor[kept.trail]
        counter.add(rule, kept.distance, kept.often, np.ones(len(rule), bool))
    rules, entities = np.unique(met // trails * len(wide) + history.anchor[met % trails], return_counts=True)
    rules = rules[entities >= min_entities]
    return rules, counter.tally().only(rules)


def count_forward(history: History, heads: Heads, candidates: Candidates, window: int) -> Iterator[Portion]:
    """The examples of questions about an entity that d was linked to."""
    anchors, group = np.unique(candidates.anchor, return_inverse=True)
    counter = Counter(window)
    for found in examples(history, history.by_entity, heads.asked, heads.asked_at, window):
        kept = found.where(np.isin(history.anchor[found.trail], anchors))
        rule = np.searchsorted(anchors, history.anchor[kept.trail])
        counter.add(rule, kept.distance, kept.often, np.zeros(len(rule), bool))
    held = counter.tally()
    for part in portions(np.searchsorted(held.rule, group), np.searchsorted(held.rule, group, side="right")):
        yield part, joined(held, group[part], candidates.followed.part(part))


def count_backward(history: History, heads: Heads, candidates: Candidates, window: int) -> Iterator[Portion]:
    """The examples of questions about c."""
    base = history.base
    asked = np.unique(heads.target * base + np.searchsorted(history.times, heads.at))
    first = np.searchsorted(asked, candidates.target * base)
    end = np.searchsorted(asked, (candidates.target + 1) * base)
    for part in portions(first, end):
        rule, place = spread(first[part], end[part])
        counter = Counter(window)
        anchor, at = candidates.anchor[part][rule], history.times[asked[place] % base]
        for found in examples(history, history.by_anchor, anchor, at, window):
            counter.add(rule[found.owner], found.distance, found.often, np.zeros(len(found.owner), bool))
        yield part, joined(counter.tally(), np.arange(part.stop - part.start), candidates.followed.part(part))
