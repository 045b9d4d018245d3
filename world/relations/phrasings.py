"""How questions are put. The held-out forms are those of the question sets that the system makes from graphs."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Phrasings:
    """Forms of a question about the object of a fact, and about its subject; what may stand before with a time."""

    objects: tuple[str, ...]
    subjects: tuple[str, ...]
    times: tuple[str, ...]


TEST = Phrasings(
    objects=("{entity} {phrase} whom or what?",), subjects=("Who or what {phrase} {entity}?",), times=("On {time}, ",)
)
TRAIN = Phrasings(
    objects=(
        "{entity} {phrase} which entity?",
        "{entity} {phrase} what?",
        "{entity} {phrase} whom?",
        "{entity} {phrase} who or which one?",
        "Name the one that {entity} {phrase}.",
        "Find X: {entity} {phrase} X.",
        "Complete: {entity} {phrase} _.",
        "Tell which entity {entity} {phrase}.",
        "{entity} {phrase} what or which?",
        "Whom does it concern: {entity} {phrase} ...?",
    ),
    subjects=(
        "Which entity {phrase} {entity}?",
        "What {phrase} {entity}?",
        "Who {phrase} {entity}?",
        "Which one or who {phrase} {entity}?",
        "Name the one that does this: {phrase} {entity}.",
        "Find X: X {phrase} {entity}.",
        "Complete: _ {phrase} {entity}.",
        "Tell which entity {phrase} {entity}.",
        "What or which {phrase} {entity}?",
        "Whose deed is it: ... {phrase} {entity}?",
    ),
    times=("At {time}, ", "Time {time}: ", "In the records of {time}, ", "On the day {time}, ", "By {time}, "),
)


def ask(rng: Random, phrasings: Phrasings, entity: str, phrase: str, time: str | None, *, asks_object: bool) -> str:
    """The question for the other end of a fact."""
    form = rng.choice(phrasings.objects if asks_object else phrasings.subjects)
    before = rng.choice(phrasings.times).format(time=time) if time else ""
    return before + form.format(entity=entity, phrase=phrase)
