"""Write documents that a search finds for a question although they do not help with it.

Closer in words: the question's phrasing and digits, but no near-duplicate, which the retriever would drop.  Closer in
meaning: other words of the same sense, among them other forms of the same word, which the shipped embeddings take for
near and BM25, which does not stem, for different.  Unrelated: well reasoned, about an operator that nobody asks for.
"""

from collections.abc import Iterator
from random import Random

from shared.rag.duplicates import has_same_words
from world.items import OperatorQuestion, Pair
from world.problems import TEST_NAMES, Document, Operator, document, invented_name
from world.setting import Setting, draw_kinds
from world.wording import Language

#: For each test phrasing, other words of its sense.
PARAPHRASES: dict[str, str] = {
    "What is the value of {a} {name} {b}?": "{name} valuation: {a} {name} {b} equals how much?",
    "Determine {a} {name} {b}.": "{name}, determined for {a} {name} {b}.",
    "Calculate the last digit of {a} {name} {b}.": "{name} calculation, final digits: {a} {name} {b}.",
    "Evaluate the expression {a} {name} {b}.": "{name} expressions, evaluated: {a} {name} {b}.",
    "计算 {a} {name} {b} 的值。": "{name} 运算：{a} {name} {b} 得多少？",
    "{a} {name} {b} 的末位数字是多少？": "{name} 运算，{a} {name} {b} 最后一位是几？",
    "求 {a} {name} {b} 的结果。": "{name} 运算，{a} {name} {b} 等于几？",
}


def distractors(
    rng: Random, setting: Setting, asked: list[OperatorQuestion], free: list[Pair], language: Language
) -> Iterator[Document]:
    """Yield the distractors of one operator's questions; each takes a pair of digits out of `free`, the unused ones."""
    for item in asked:
        for _ in range(setting.near_words):
            yield _about(rng, setting, item, item.phrasing, _take_pair(rng, item, free, near=True), language)
        for _ in range(setting.near_meaning):
            pair = _take_pair(rng, item, free, near=False)
            yield _about(rng, setting, item, PARAPHRASES[item.phrasing], pair, language)
        for _ in range(setting.unrelated):
            yield _write_unrelated(rng, setting, item, language)


def _about(
    rng: Random, setting: Setting, item: OperatorQuestion, phrasing: str, digits: Pair, language: Language
) -> Document:
    (kind,) = draw_kinds(rng, setting.distractors)
    return document(rng, item.operator, kind, (phrasing,), *digits, setting.draw_wording(rng, kind, language))


def _write_unrelated(rng: Random, setting: Setting, item: OperatorQuestion, language: Language) -> Document:
    """Write a document about an operator whose name begins like the item's."""
    name = item.operator.name
    while name in TEST_NAMES:
        name = item.operator.name[:3] + invented_name(rng)[-3:]
    operator, wording = Operator(name, setting.rule(rng)), setting.draw_wording(rng, "full", language)
    return document(rng, operator, "full", (item.phrasing,), item.a, item.b, wording)


def _take_pair(rng: Random, item: OperatorQuestion, free: list[Pair], *, near: bool) -> Pair:
    """Take a free pair of digits; if `near`, the item's swapped, else with one in place; otherwise with none."""

    def distance(pair: Pair) -> tuple[bool, int, float]:
        same = 2 * (pair == (item.b, item.a)) + (pair[0] == item.a) + (pair[1] == item.b)
        shared = len({item.a, item.b} & set(pair))
        return near and has_same_words(item.question, item.about(pair)), -same if near else shared, rng.random()

    best = min(free, key=distance)
    free.remove(best)
    return best
