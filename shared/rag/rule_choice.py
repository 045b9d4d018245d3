"""Choose rules of a bank for a question: thresholds, order and number."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from shared.calls import RuleChoice
from shared.replies import TEMPORAL, Miner, NumberedRule, Rule

Side = Literal["", "object", "subject"]


class RuleRequest(NamedTuple):
    """Which rules are wanted."""

    relation: str
    side: Side
    choice: RuleChoice


def choose(rules: Iterable[NumberedRule], asked: RuleRequest, miner: Miner) -> tuple[NumberedRule, ...]:
    """Return the chosen rules in order; the order of `rules` does not matter.

    Taken from parts, and from what was taken of these, they are the same.
    """
    fitting = (each for each in rules if _fits(each.rule, asked, miner))
    return tuple(sorted(fitting, key=_place, reverse=asked.choice.order == "worst")[: asked.choice.most])


def draw(seed: int, most: int, of: int) -> list[int]:
    """Draw `most` different numbers from 0 to `of` - 1, or all: the beginning of a shuffle by `seed`."""
    moved: dict[int, int] = {}
    drawn = []
    for place in range(min(most, of)):
        chosen = place + int.from_bytes(sha256(f"{seed} {place}".encode()).digest()) % (of - place)
        drawn.append(moved.get(chosen, chosen))
        moved[chosen] = moved.get(place, place)
    return drawn


def get_predicted_side(rule: Rule) -> Literal["object", "subject"]:
    """Return the end of its head that a temporal rule predicts."""
    subject, obj = rule.head.subject, rule.head.object
    if subject == 0 or obj == 1:
        return "object"
    if obj == 0 or subject == 1:
        return "subject"
    # A frequent partner: the body leaves open what the head names.
    return "object" if any(isinstance(atom.object, int) for atom in rule.body[:1]) else "subject"


def _fits(rule: Rule, asked: RuleRequest, miner: Miner) -> bool:
    choice = asked.choice
    is_good = rule.certainty >= choice.confidence and rule.support >= choice.support
    return is_good and rule.head.relation == asked.relation and _answers(rule, asked.side, miner)


def _answers(rule: Rule, side: Side, miner: Miner) -> bool:
    """Return whether the rule predicts the asked end for more than one entity."""
    if miner in TEMPORAL:
        predicted = get_predicted_side(rule)
        if side not in ("", predicted):
            return False
        side = predicted
    known: Sequence[int | str] = {
        "object": [rule.head.subject], "subject": [rule.head.object], "": [rule.head.subject, rule.head.object],
    }[side]  # fmt: skip
    return any(isinstance(term, int) for term in known)


def _place(each: NumberedRule) -> tuple[float, int, int, int]:
    return (-each.rule.certainty, -each.rule.support, len(each.rule.body), each.number)
