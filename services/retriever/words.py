"""The tokenizer of all sparse indexes: its settings, and what of them goes into a recipe."""

from typing import Any, Literal

from services.retriever import chinese, tokens


class TermCutter:
    """Cuts documents and questions into terms."""

    def __init__(self, cut: Literal["auto", "jieba", "bigrams"] = "bigrams") -> None:
        """Set up the tokenizer."""
        self._cut, self._made_by = chinese.choose_cut(cut)

    def of(self, text: str) -> list[str]:
        """Return the terms of `text` in order, with repetitions."""
        return tokens.tokenise(text, self._cut)

    def recipe(self) -> dict[str, Any]:
        """Return what determines the terms. Pairs of characters add nothing, so that indexes from before the choice
        stay valid."""
        return {"tokens": tokens.VERSION} | ({"chinese": self._made_by} if self._made_by else {})


PAIRS = TermCutter()
"""The default, which needs no dictionary."""
