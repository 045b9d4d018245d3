"""Rules of kind `pair`: what linked two entities leads to a link between them (the source's xy-rules).

`head(0, 1)` follows `body(0, 1)` or `body(1, 0)`; where body and head are the same, it is recurrence (Gastinger et al.
2024). An example is a question and an entity that the body led to within the window before; it is followed where the
head leads there, too.
"""

import numpy as np

from shared.rules.simple.heads import Heads, examples
from shared.rules.simple.history import History
from shared.rules.simple.tally import Counter, Tally


def count_pairs(history: History, heads: Heads, window: int) -> Tally:
    """The examples by the body's link."""
    entities = int(history.target.max(initial=0)) + 1
    answers = np.unique(heads.question * entities + heads.target)
    counter = Counter(window)
    for found in examples(history, history.by_entity, heads.asked, heads.asked_at, window):
        anchor = history.anchor[found.trail]
        followed = np.isin(found.owner * entities + history.target[anchor], answers)
        counter.add(history.link[anchor], found.distance, found.often, followed)
    return counter.tally()
