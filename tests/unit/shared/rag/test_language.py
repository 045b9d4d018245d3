"""The language of a question, what of it is mathematics, and the prompts that there are in both languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Call, Generate
from shared.params import Params
from shared.pipelines import registry
from shared.rag.prompts import detect_language, list_template_ids, localised, template
from shared.rag.text import change_prose, find_mathematics, list_prose
from shared.samples import Item, Sample, Strategy
from tests.unit.shared.pipelines.test_pipelines import LIBRARY, decision, drive

CHINESE = "小明有3个苹果，小红有5个，一共有多少个？"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is 2 plus 3?", "en"),
        (CHINESE, "zh"),
        ("求 $\\text{the derivative of } x^2$ 的值", "zh"),
        ("用 Python 计算 1+2", "zh"),
        ("What does the character 龙 mean?", "en"),
        (r"$\text{求值}$ Evaluate.", "en"),
        ("2+3=?", "en"),
        ("", "en"),
        ("Сколько будет 2 плюс 3?", "en"),
    ],
)
def test_the_script_tells_the_language(question: str, expected: str) -> None:
    assert detect_language(question) == expected


def test_a_chinese_question_takes_the_chinese_template_where_there_is_one() -> None:
    assert localised("cot", CHINESE) == "cot-zh"
    assert localised("cot", "What is 2 plus 3?") == "cot"
    assert localised("no-such", CHINESE) == "no-such"


def test_chinese_templates_take_the_slots_of_the_english_ones() -> None:
    chinese = [name for name in list_template_ids() if name.endswith("-zh")]
    assert {"cot-zh", "rewrite-zh", "decompose-zh", "relevance-zh", "keywords-zh"} <= set(chinese)
    for name in chinese:
        ours, theirs = template(name), template(name.removesuffix("-zh"))
        assert (ours.required, ours.optional, ours.defaults.keys()) == (
            theirs.required,
            theirs.optional,
            theirs.defaults.keys(),
        )


@pytest.mark.parametrize("name", ["closed-book", "dense", "hybrid", "mathrag-gate", "sparse"])
def test_baselines_ask_in_the_language_of_the_question(name: str) -> None:
    def last(question: str) -> list[Call]:
        sample = Sample(item=Item(ordinal=0, question=question), prepared=decision(Strategy.RULES))
        return drive(registry.get(name).run(sample, Params(), LIBRARY))[1][-1]

    for question, expected in (("What is 2 plus 3?", "cot"), (CHINESE, "cot-zh")):
        assert [call.template for call in last(question) if isinstance(call, Generate)] == [expected]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Solve $x + 1 = 2$ for x.", ["$x + 1 = 2$"]),
        (r"Evaluate \sqrt{2} now", [r"\sqrt{2}"]),
        ("求x^2+3x的导数", ["x^2+3x"]),
        ("Let f(x)=2x. Find a_n", ["f(x)=2x.", "a_n"]),
        ("What is the well-known rule?", []),
        ("12 and 18 and/or (see below) none", ["12", "18"]),
        ("体育小组有34人", ["34"]),
    ],
)
def test_mathematics_is_found(text: str, held: list[str]) -> None:
    assert [text[start:end] for start, end in find_mathematics(text)] == held


@given(st.text(alphabet="ab x$\\{}^1+求值,. ", max_size=40))
def test_prose_and_mathematics_make_up_the_text(text: str) -> None:
    spans = find_mathematics(text)
    assert sum(map(len, list_prose(text))) + sum(end - start for start, end in spans) == len(text)
    assert change_prose(text, lambda part: part) == text
    assert change_prose(text, lambda _: "") == "".join(text[start:end] for start, end in spans)
