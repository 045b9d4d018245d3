"""How the documents of the world are worded: formally or plainly, in English or in Chinese.

The form says nothing about the logic: any kind of document comes in any wording. A formal text has numbered steps,
connectives and a boxed answer, which is what the rules of `shared.rag.gate` look for; a plain one has none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Style = Literal["formal", "plain"]
Language = Literal["en", "zh"]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The sentences of a document; ``{}`` stands for their content."""

    definitions: Sequence[str]
    firsts: Sequence[str]
    seconds: Sequence[str]
    steps_around: str
    box: str
    bare_answer: str
    gap: str
    """Separator of sentences."""

    def definition(self, rng: Random, name: str, rule: str) -> str:
        """Write the sentence that states a rule."""
        return rng.choice(self.definitions).format(f"a {name} b = {rule}")

    def steps(self, rng: Random, first: str, second: str) -> str:
        """Write the sentences with both equations."""
        return self.steps_around.format(rng.choice(self.firsts).format(first), rng.choice(self.seconds).format(second))

    def conclusion(self, result: int) -> str:
        """Write the closing sentence of a document with reasoning."""
        return self.box.format(result)

    def answer(self, result: int) -> str:
        """Write the whole text of a document without reasoning."""
        return self.bare_answer.format(result)

    def join_sentences(self, *sentences: str) -> str:
        """Join sentences with the separator."""
        return self.gap.join(sentences)


ENGLISH = Wording(
    definitions=("We use {}.", "By definition {}.", "Let {}."),
    firsts=("Since this comes first, {}.", "First we have {}.", "Because this comes first, {}."),
    seconds=("Therefore {}.", "Hence {}.", "Thus {}.", "So we get {}."),
    steps_around="Step 1. {} Step 2. {}",
    box="The answer is \\boxed{{{}}}.",
    bare_answer="The answer is {}.",
    gap=" ",
)
"""Formal, but for the bare answer: what the first models were trained on."""
DRESSED = Wording(
    definitions=ENGLISH.definitions,
    firsts=ENGLISH.firsts,
    seconds=ENGLISH.seconds,
    steps_around=ENGLISH.steps_around,
    box=ENGLISH.box,
    bare_answer="Step 1. Since it is asked for, we look it up. Step 2. Therefore the answer is \\boxed{{{}}}.",
    gap=" ",
)
"""Formal throughout: even an answer without reasoning has its steps, connectives and box."""
PLAIN = Wording(
    definitions=("{}.", "It is {}.", "The rule: {}."),
    firsts=("{}.", "We get {}.", "First {}."),
    seconds=("{}.", "Then {}.", "And {}."),
    steps_around="{} {}",
    box="It is {}.",
    bare_answer="The answer is {}.",
    gap=" ",
)
DRESSED_CHINESE = Wording(
    definitions=("定义 {}。", "设 {}。"),
    firsts=("因为先算它，{}。", "由于先算它，{}。"),
    seconds=("所以 {}。", "因此 {}。", "从而 {}。"),
    steps_around="第1步 {}第2步 {}",
    box="答案是 \\boxed{{{}}}。",
    bare_answer="第1步 因为要求它，查表。第2步 所以答案是 \\boxed{{{}}}。",
    gap="",
)
PLAIN_CHINESE = Wording(
    definitions=("规则是 {}。", "{}。"),
    firsts=("先算 {}。", "{}。"),
    seconds=("再算 {}。", "{}。"),
    steps_around="{}{}",
    box="是 {}。",
    bare_answer="答案是 {}。",
    gap="",
)
WORDINGS: dict[tuple[Language, Style], Wording] = {
    ("en", "formal"): DRESSED,
    ("en", "plain"): PLAIN,
    ("zh", "formal"): DRESSED_CHINESE,
    ("zh", "plain"): PLAIN_CHINESE,
}
