"""Rules that need no link before: what is frequent, whatever the entity or whatever the step.

`frequent entity`, the source's z-rules: that the head holds for something, `head(2, 3)`, leads to `head(0, c)`, and
to `head(c, 0)` where it predicts subjects.
`frequent partner`, its f-rules: that it holds for entity s, `head(s, 2)`, leads to `head(s, o)`.
Their curve is one number, the confidence that counts. The source counts partners anew at each step of a question; ours
are those of the mined graph, so that a bank's rules alone say what is predicted.
"""

from typing import NamedTuple

import numpy as np

from shared.rules.simple.heads import Heads
from shared.rules.simple.history import Numbers

UNSEEN = 10
"""Facts added to those that a frequency is a share of (the source's `Z_UNSEEN_NEGATIVES`, `F_UNSEEN_NEGATIVES`)."""
ENTITY_WEIGHT = 0.1
"""What the share of a frequent entity counts (the source's `Z_RULES_FACTOR`)."""


class Frequent(NamedTuple):
    """Who is frequent, each (rules,)."""

    source: Numbers
    """-1 where it is whatever entity."""
    target: Numbers
    support: Numbers
    """Facts with this source and target."""
    size: Numbers
    """Facts with this source."""


def frequent_entities(heads: Heads, min_support: int) -> Frequent:
    """The targets of a link."""
    target, support = np.unique(heads.target, return_counts=True)
    return _enough(np.full_like(target, -1), target, support, np.full_like(target, len(heads.target)), min_support)


def frequent_partners(heads: Heads, min_support: int) -> Frequent:
    """The targets of each source of a link."""
    entities = int(heads.target.max(initial=0)) + 1
    keys, support = np.unique(heads.source * entities + heads.target, return_counts=True)
    source = keys // entities
    return _enough(source, keys % entities, support, np.bincount(heads.source)[source], min_support)


def _enough(source: Numbers, target: Numbers, support: Numbers, size: Numbers, min_support: int) -> Frequent:
    return Frequent(*(part[support >= min_support] for part in (source, target, support, size)))
