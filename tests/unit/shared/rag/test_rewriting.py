"""What becomes of the judge model's replies, which may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Write
from shared.params import EnhanceParams
from shared.rag.rewriting import (
    WrittenQueries,
    ask_for_keywords,
    decompose,
    read_keywords,
    read_rewrite,
    read_subqueries,
    rewrite,
)
from shared.replies import Failure, FailureKind, Generated

QUESTION = "What is the greatest common divisor of 12 and 18?"
PARAMS = EnhanceParams()


def read(text: str, *, truncated: bool = False) -> WrittenQueries:
    return read_rewrite(QUESTION, Generated(text=text, truncated=truncated))


def split(text: str, question: str = QUESTION, *, truncated: bool = False) -> WrittenQueries:
    return read_subqueries(question, Generated(text=text, truncated=truncated), PARAMS)


def test_the_judge_is_asked_in_the_language_of_the_question() -> None:
    assert rewrite(QUESTION, PARAMS) == Write(
        template="rewrite", decoding=PARAMS.decoding, slots={"question": QUESTION}
    )
    asked = decompose("求12和18的最大公约数", EnhanceParams(subqueries=2))
    assert (asked.template, asked.slots["subqueries"]) == ("decompose-zh", "2")


@pytest.mark.parametrize(
    "text",
    [
        "gcd of 12 and 18",
        '  "gcd of 12 and 18"\n\nI hope this helps!',
        "Query: gcd of 12 and 18",
        "Here is the rewritten query: gcd of 12 and 18",
        "改写后的查询：gcd of 12 and 18",
        "1. gcd of 12 and 18",
        "**gcd of 12 and 18**",
        "Sure! Here is a better query:\ngcd of 12 and 18",
        "Sure! Here is a better query: gcd of 12 and 18",
        "Sure, gcd of 12 and 18",
        "Certainly! Here's the rewritten search query:\n\n> gcd of 12 and 18",
        "Of course. Here are some options:\n1. gcd of 12 and 18\n2. common factors",
        "Here is a better one:\n- gcd of 12 and 18",
        "I’d be happy to help!\ngcd of 12 and 18",
        "This is the query: gcd of 12 and 18",
        "Rewritten query: gcd of 12 and 18",
        "**Rewritten query:** gcd of 12 and 18",
        "### Rewritten query\n\n`gcd of 12 and 18`",
        "Query 1: gcd of 12 and 18",
        "```text\ngcd of 12 and 18\n```",
        "* gcd of 12 and 18",
        "The rewritten query is: gcd of 12 and 18",
        "改写后：gcd of 12 and 18",
        "检索词为：gcd of 12 and 18",
        "“gcd of 12 and 18”",
        "当然\n改写后的查询：gcd of 12 and 18",
        "当然，改写后的查询：gcd of 12 and 18",
        "当然可以！以下是改写后的检索查询：\ngcd of 12 and 18",
        "重写后的查询:gcd of 12 and 18",
        "好的。优化后的查询语句：\n「gcd of 12 and 18」",
        "<think>They want 12 and 18.</think>gcd of 12 and 18",
        "<think>\nThey want 12 and 18.\n\nSo the gcd.\n</think>\n\ngcd of 12 and 18",
        "<thinking>Let me see.</thinking>\nQuery: gcd of 12 and 18",
        "<reasoning>banana</reasoning>gcd of 12 and 18",
        "They want a query.\n</think>\ngcd of 12 and 18",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>gcd of 12 and 18",
    ],
)
def test_a_rewriting_is_its_first_line_bare(text: str) -> None:
    assert read(text).queries == ("gcd of 12 and 18",)
    assert (read(text).decision.action, read(text).decision.fallback) == ("written", None)


@pytest.mark.parametrize("text", [QUESTION, QUESTION.upper(), "  what is the greatest common divisor  of 12 and 18 "])
def test_the_same_question_again_is_no_failure(text: str) -> None:
    assert read(text) == split(text)._replace(decision=read(text).decision)
    assert (read(text).queries, read(text).decision.action, read(text).decision.fallback) == ((), "unchanged", None)


@pytest.mark.parametrize("text", [
        "[[3]]", "???", "Query:", "  \n ", "gcd of 12 and 18 " * 20, '"""', "6", "The answer is 6.", "of the", "Sure!",
        "None", "N/A", "Sure! Here is a better query:", "以下是改写后的查询：", "当然。", "```\n```",
        "<think>They want the gcd of 12 and 18", "<think>the gcd of 12 and 18</think>",
    ],
)  # fmt: skip
def test_what_cannot_be_searched_with_leaves_the_original(text: str) -> None:
    assert read(text).queries == ()
    assert (read(text).decision.action, read(text).decision.fallback) == ("original", "unparsed")


@pytest.mark.parametrize(
    "text",
    [
        "I am a language model and cannot answer.",
        "I'm a large language model, so I cannot rewrite the greatest common divisor of 12 and 18.",
        "As an AI, I cannot search for the greatest common divisor.",
        "As a language model I have no access to a search engine.",
        "I cannot answer this question about 12 and 18.",
        "I can’t help with that.",
        "I'm sorry, but the greatest common divisor is unclear.",
        "Sorry, I don't know what a divisor is.",
        "Unfortunately, I am unable to rewrite the question.",
        "I do not have enough information.",
        "The question cannot be answered.",
        "It is not possible to divide.",
        "As a helpful assistant, I only divide.",
        "作为一个助手，我只会除法。",
        "I'm sorry, I cannot do that.\nPlease ask a teacher for the greatest common divisor of 12 and 18.",
        "> I'm sorry\n1. Ask a teacher for the divisor of 12",
        "我无法回答这个问题。",
        "很抱歉，我无法改写12和18的最大公约数。",
        "对不起，我不能回答。",
        "作为一个人工智能语言模型，我没有检索的能力。",
        "作为AI，我不知道12和18的最大公约数。",
        "我是一个语言模型，无法回答。",
        "我無法回答",
        "<think>Hm.</think>I cannot answer.",
    ],
)
def test_a_refusal_is_no_query(text: str) -> None:
    for question in (QUESTION, "求12和18的最大公约数"):
        assert read_rewrite(question, Generated(text=text)).decision.fallback == "unparsed"
        assert split(text, question).queries == ()


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is the area of a circle?", "pi r squared"),
        ("What is a language model?", "definition of a language model"),
        ("Can an AI be sorry?", "AI and regret: can models be sorry"),
        ("What is 2 plus 3?", "2 + 3"),
        ("求圆的面积", "area of a circle"),
        ("圆的面积怎么求？", "formula for the area of a circle"),
        ("What is the area of a circle?", "圆的面积公式"),
        ("What is the area of a circle?", "площадь круга"),
        ("What is the area of a circle?", "円の面積の公式"),
        ("What is the ratio of boys to girls?", "ratio 3:4 of boys to girls"),
        ("How many apples do I have?", "I have 3 apples and buy 2, total apples"),
        ("Who am I?", "I am a large even number below 100"),
        ("Am I right?", "I am sure that 91 is prime"),
        ("我有几个苹果？", "如果你有3个苹果，又买了2个"),
        ("学校有多少人？", "希望小学的人数"),
        ("我是几？", "我是一个两位数"),
    ],
)
def test_a_wording_without_a_common_word_is_a_query(question: str, text: str) -> None:
    for reply in (text, f"Query: {text}"):
        assert read_rewrite(question, Generated(text=reply)).queries == (text,)
        assert split(reply, question).queries == (text,)


@pytest.mark.parametrize("text", ["[[3]]", "[[3]] as an AI", "[[3]]\n[[4]]", "**[[3]]**"])
def test_a_rating_is_no_query(text: str) -> None:
    assert read_rewrite("What is 3 plus 4?", Generated(text=text)).queries == ()
    assert split(text, "What is 3 plus 4?").queries == ()


def test_a_failed_call_leaves_the_original() -> None:
    gone = Failure(kind=FailureKind.CONNECTION)
    assert read_rewrite(QUESTION, gone).decision.fallback == "connection"
    assert read_subqueries(QUESTION, gone, PARAMS).decision.fallback == "connection"


def test_a_line_that_was_cut_off_is_left_out() -> None:
    assert read("gcd of 12 and", truncated=True).decision.fallback == "truncated"
    assert split("factors of 12\nfactors of 18\ngcd of", truncated=True).queries == ("factors of 12", "factors of 18")


def test_sub_queries_are_whole_lines_each_once_and_not_too_many() -> None:
    text = "1. Factors of 12?\n2) factors of 18\n\n- factors of 12\n(3) Which factors are common?\n4. greatest divisor"
    assert split(text).queries == ("Factors of 12?", "factors of 18", "Which factors are common?")
    assert split("子问题1：12的约数\n①18的约数", "求12和18的公约数").queries == ("12的约数", "18的约数")


@pytest.mark.parametrize(
    "text",
    [
        "Sure! Here are the simpler questions:\n1. factors of 12\n2. factors of 18\nI hope this helps!",
        "The question has two parts.\n- factors of 12\n- factors of 18\nTogether they give the divisor.",
        "Questions: 1. factors of 12\n2. factors of 18",
        "**Sub-question 1:** factors of 12\n**Sub-question 2:** factors of 18",
        "factors of 12\nfactors of 18\nLet me know if you need more.",
        "<think>1. banana\n2. bread</think>factors of 12\nfactors of 18",
        "当然，以下是子问题：\n1、factors of 12\n2、factors of 18\n希望这对您有帮助！",
        "factors of 12\nfactors of 18\nI'm sorry, there is no third question.\nlcm",
    ],
)
def test_talk_around_sub_queries_is_none(text: str) -> None:
    assert split(text).queries == ("factors of 12", "factors of 18")


def test_numbers_that_begin_a_question_stay() -> None:
    assert split("12.5 divided by 12\n18 divided by 12").queries == ("12.5 divided by 12", "18 divided by 12")


def test_sub_queries_that_say_nothing_are_left_out() -> None:
    assert split(f"{QUESTION}\nOkay.\nfactors of 12\n[[3]]\nfor the").queries == ("factors of 12",)


@pytest.mark.parametrize(
    "piece", ["Query: ", "sub-", "the new ", "here is ", "<think>", "Sure! ", "1. ", "我", "- ", "* "]
)
def test_a_long_line_is_read_in_linear_time(piece: str) -> None:
    assert read(piece * 100_000).queries == split(piece * 100_000).queries == ()


@given(st.text(max_size=80), st.text(max_size=200), st.booleans())
def test_no_reply_is_too_odd(question: str, text: str, truncated: bool) -> None:
    for written in (
        read_rewrite(question, Generated(text=text, truncated=truncated)),
        read_subqueries(question, Generated(text=text, truncated=truncated), PARAMS),
    ):
        assert len(written.queries) <= 3
        assert len(set(written.queries)) == len(written.queries)
        assert all(query.strip() and query != question and len(query) <= 200 for query in written.queries)
        assert bool(written.queries) == (written.decision.action == "written")
        assert (written.decision.action == "original") == (written.decision.fallback is not None)


@pytest.mark.parametrize("text", ["area, triangle", "Keywords: area, triangle", '"area, triangle"\nbecause of it'])
def test_keywords_are_read_like_a_query(text: str) -> None:
    question = "What is the area of the triangle?"
    found = read_keywords(question, Generated(text=text))
    assert found.queries == ("area, triangle",)
    assert (found.decision.stage, found.decision.action) == ("keywords", "written")


def test_a_refusal_has_no_keywords() -> None:
    found = read_keywords("What is the area of the triangle?", Generated(text="I cannot name keywords of a triangle."))
    assert (found.queries, found.decision.fallback) == ((), "unparsed")
    assert ask_for_keywords("What is it?", EnhanceParams()).template == "keywords"
