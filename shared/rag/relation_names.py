"""Find the relation that a text names."""

from collections.abc import Iterable, Mapping, Sequence

from shared.rag.wording import normalise_words

MOST_NAMED = 100
"""Relations that a model is asked to choose from."""


class RelationNames:
    """Finds the relation whose words stand in a text, normalised as answers are (`shared.rag.wording`)."""

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        """`names` are pairs of a relation and words for it; a relation may have several."""
        self._relations: dict[tuple[str, ...], str] = {}
        for relation, said in sorted(names):
            self._relations.setdefault(tuple(normalise_words(said)), relation)
        self._lengths = sorted({len(each) for each in self._relations}, reverse=True)

    def find_in(self, text: str) -> str | None:
        """Return the relation whose words occur consecutively in `text`: the longest, ties by name."""
        phrase = normalise_words(text)
        for length in self._lengths:
            windows = (tuple(phrase[start : start + length]) for start in range(len(phrase) - length + 1))
            if found := [self._relations[window] for window in windows if window in self._relations]:
                return min(found)
        return None


def list_nearest(question: str, phrases: Mapping[str, str], most: int = MOST_NAMED) -> Sequence[str]:
    """Return the phrases that share most words with the question; ties are in alphabetical order."""
    question_words = set(normalise_words(question))
    return sorted(
        set(phrases.values()), key=lambda said: (-len(question_words.intersection(normalise_words(said))), said)
    )[:most]
