"""The tokenizer of sparse indexes: its settings, and what of them stands in a recipe. Every back end uses this one."""

from typing import Any, Literal

from services.retriever import chinese, tokens


class Words:
    """Text to terms; the same for documents and questions."""

    def __init__(self, cut: Literal["auto", "jieba", "bigrams"] = "bigrams") -> None:
        """Raises: Unavailable: jieba is asked for and not installed."""
        self._cut, self._made_by = chinese.chosen(cut)

    def of(self, text: str) -> list[str]:
        """Its terms in order, repeated where it repeats them."""
        return tokens.tokenise(text, self._cut)

    def recipe(self) -> dict[str, Any]:
        """What determines the terms. Pairs of characters say nothing, as in indexes of before there was a choice."""
        return {"tokens": tokens.VERSION} | ({"chinese": self._made_by} if self._made_by else {})


PAIRS = Words()
"""The one that is always there."""
