"""Relations by the words for them: which one a text names."""

from collections.abc import Iterable, Mapping, Sequence

from shared.rag.wording import words

MOST_NAMED = 100
"""Relations that a model is asked to choose from."""


class RelationNames:
    """Finds the relation whose words stand in a text, normalised as answers are (`shared.rag.wording`)."""

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        """`names` are pairs of a relation and words for it; a relation may have several."""
        self._relations: dict[tuple[str, ...], str] = {}
        for relation, said in sorted(names):
            self._relations.setdefault(tuple(words(said)), relation)
        self._lengths = sorted({len(each) for each in self._relations}, reverse=True)

    def named_in(self, text: str) -> str | None:
        """The relation whose words follow each other in `text`: the one with most words, ties by name."""
        said = words(text)
        for length in self._lengths:
            windows = (tuple(said[start : start + length]) for start in range(len(said) - length + 1))
            if found := [self._relations[window] for window in windows if window in self._relations]:
                return min(found)
        return None


def nearest(question: str, phrases: Mapping[str, str], most: int = MOST_NAMED) -> Sequence[str]:
    """The phrases that share most words with the question, ties in the order of the alphabet."""
    asked = set(words(question))
    return sorted(set(phrases.values()), key=lambda said: (-len(asked.intersection(words(said))), said))[:most]
