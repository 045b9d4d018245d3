import json
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import MAX_QUESTION, Call, Decoding, Generate, Lane, Retrieve, Write
from shared.params import EnhanceParams, FusionParams, HydeParams, Params
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin, bind
from shared.rag.rewriting import (
    CONCEPT_WEIGHTS,
    EXACT_WEIGHTS,
    Dictionary,
    WrittenQueries,
    ask_for_keywords,
    choose_weights,
    classify_intent,
    classify_vagueness,
    clean,
    decompose,
    draft_hypotheses,
    enhance,
    is_generic,
    is_one_edit_apart,
    make_dictionary,
    read_hypotheses,
    read_keywords,
    read_rewrite,
    read_subqueries,
    rewrite,
)
from shared.rag.text import find_formulas
from shared.replies import CallFailed, Failure, FailureKind, Generated, Reply
from shared.samples import Decision, Item, Outcome, Sample
from tests.unit.cases import named
from tests.unit.datasets import DATA, needs
from tests.unit.shared.pipelines.test_pipelines import A, B, drive, found

# What becomes of the judge model's replies, which may be anything.


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


# Questions without odd characters, blanks and politeness; formulas stay.


@pytest.mark.parametrize(
    ("asked", "cleaned"),
    [
        ("Hello, can you please tell me what is 2 plus 3?  Thanks!", "what is 2 plus 3?"),
        ("Please find the area.", "find the area."),
        ("I would like to know why 1 is not prime, thank you very much", "why 1 is not prime"),
        ("请问，１２和１８的最大公约数是多少？谢谢", "12和18的最大公约数是多少?"),
        ("你好，帮我求一下圆的面积", "求一下圆的面积"),
        ("老师好，能不能告诉我什么是素数", "什么是素数"),
        ("How  many\n\n ﬁsh… are　there?", "How many fish... are there?"),
    ],
)
def test_politeness_and_odd_characters_go(asked: str, cleaned: str) -> None:
    assert clean(asked) == cleaned


@pytest.mark.parametrize(
    "asked",
    [
        "Find x² + ½ over ℝ.",
        "Will you win 3 games?",
        "Histogram of 3 hives",
        "请求的数量是多少",
        "请假3天",
        "How does one say please in 3 languages?",
        "Evaluate $x  +  y$.",
        r"Find \[  a   b  \].",
        "Find $ＡＢ$.",
    ],
)
def test_what_means_something_stays(asked: str) -> None:
    assert clean(asked) == ("win 3 games?" if asked.startswith("Will") else asked)


@pytest.mark.parametrize("asked", ["Hello", "please", "你好", "谢谢", "", "?"])
def test_nothing_but_politeness_stays(asked: str) -> None:
    assert clean(asked) == asked


@pytest.mark.parametrize("piece", ["!", "thanks! ", "please ", "$", "{", "，", "can you "])
def test_the_longest_question_is_cleaned_in_no_time(piece: str) -> None:
    assert len(clean((piece * MAX_QUESTION)[:MAX_QUESTION])) <= MAX_QUESTION


@given(st.text(max_size=60))
def test_cleaning_twice_is_cleaning_once(asked: str) -> None:
    once = clean(asked)
    assert clean(once) == once


@given(
    st.lists(
        st.sampled_from(["please", "find", "$a  b$", "$ﬁ^2$", "  ", "你好", "x², ", "thanks", r"\(１\)"]), max_size=8
    )
)
def test_no_formula_is_ever_touched(parts: list[str]) -> None:
    asked = " ".join(parts)
    held = [asked[start:end] for start, end in find_formulas(asked)]
    cleaned = clean(asked)
    assert [cleaned[start:end] for start, end in find_formulas(cleaned)] == held


# Synonyms and corrections from the dictionary.


@pytest.fixture(scope="module")
def shipped() -> Dictionary:
    return make_dictionary({})


@pytest.mark.parametrize(
    ("question", "synonyms"),
    [
        (
            "What is the GCD of 12 and 18?",
            ("greatest common divisor", "greatest common factor", "highest common factor"),
        ),
        ("How many primes are there?", ("prime number",)),
        ("Is 7 a prime number?", ()),
        ("What is the chance of rain?", ("probability", "likelihood")),
        ("Find $gcd(a, b)$.", ()),
        ("What is a zigzag?", ()),
    ],
)
def test_synonyms_of_the_terms_in_a_question(shipped: Dictionary, question: str, synonyms: tuple[str, ...]) -> None:
    assert shipped.synonyms(question) == synonyms


def test_a_chinese_question_gets_english_names_too(shipped: Dictionary) -> None:
    assert shipped.synonyms("这两个素数的和") == ("质数", "prime number", "prime")


def test_a_question_is_not_drowned_in_synonyms(shipped: Dictionary) -> None:
    many = shipped.synonyms("gcd, lcm, prime, divisor, remainder, integer, probability, permutation")
    assert len(many) == 8
    assert many[0] == "greatest common divisor"


def test_a_job_brings_its_own_terms() -> None:
    own = make_dictionary({"snark number": ("boojum", "蛇鲨数")})
    assert own.synonyms("Find the boojum") == ("snark number",)
    assert own.synonyms("蛇鲨数是多少个呢") == ("snark number", "boojum")
    assert own.correct("find the bojum").corrections == {}
    assert own.correct("find the booojum").corrections == {"booojum": "boojum"}
    assert own.synonyms("gcd")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("probablity", "probability"),
        ("traingle", "triangle"),
        ("perimiter", "perimeter"),
        ("hypotenusee", "hypotenuse"),
    ],
)
def test_a_misspelt_term_is_put_right(shipped: Dictionary, typed: str, meant: str) -> None:
    assert shipped.correct(f"Find the {typed} of it") == (f"Find the {meant} of it", {typed: meant})


@pytest.mark.parametrize(
    "question",
    [
        "the friction of a victor in a factory",
        "triangles, averaged values and circled numbers",
        "Hector Radiuss and Trapezoidd",
        r"Find $\text{perimiter}$ and perimiter_1",
        "fractoin" * 2,
        "a prme",
        "直角三角型和锐角三角形",
    ],
)
def test_what_is_not_surely_wrong_stays(shipped: Dictionary, question: str) -> None:
    assert shipped.correct(question) == (question, {})


def test_a_word_near_two_terms_stays() -> None:
    own = make_dictionary({"snarkle": (), "snarkie": ()})
    assert own.correct("the snarkue").corrections == {}


@needs("math")
def test_no_right_word_of_math_is_corrected(shipped: Dictionary) -> None:
    with (DATA / "math" / "train.jsonl").open() as lines:
        questions = [json.loads(line)["problem"] for line in islice(lines, 2000)]
    corrections = [shipped.correct(question).corrections for question in questions]
    assert [found for found in corrections if found] == []


@pytest.mark.parametrize(
    ("left", "right", "near"),
    [
        ("angle", "angles", True),
        ("angle", "anle", True),
        ("angle", "ankle", True),
        ("angle", "agnle", True),
        ("angle", "angle", False),
        ("angle", "elgna", False),
        ("angle", "agnel", False),
        ("aa", "aaaa", False),
        ("", "a", True),
    ],
)
def test_one_edit(left: str, right: str, near: bool) -> None:
    assert is_one_edit_apart(left, right) is is_one_edit_apart(right, left) is near


WORDS = st.text("abc", max_size=6)


@given(WORDS, WORDS)
def test_one_edit_is_what_one_edit_makes(left: str, right: str) -> None:
    made = {left[:i] + c + left[j:] for i in range(len(left) + 1) for j in (i, i + 1) for c in ("", *"abc")}
    made |= {left[:i] + left[i + 1] + left[i] + left[i + 2 :] for i in range(len(left) - 1)}
    assert is_one_edit_apart(left, right) is (right in made and right != left)


@given(
    st.lists(st.sampled_from(["probablity", "$probablity$", r"\(traingle\)", "求", "and", "x^traingle"]), max_size=6)
)
def test_no_formula_is_corrected(parts: list[str]) -> None:
    asked = " ".join(parts)
    held = [asked[start:end] for start, end in find_formulas(asked)]
    put_right = make_dictionary({}).correct(asked).question
    assert [put_right[start:end] for start, end in find_formulas(put_right)] == held
    assert put_right.count("x^traingle") == asked.count("x^traingle")


def test_generic_words_are_known_in_lower_case() -> None:
    assert is_generic("what")
    assert is_generic("测试")
    assert not is_generic("prime")


# HyDE: hypothetical documents are written, searched with, and thrown away.

SHORT = "What is x?"
REFUSED = Failure(kind=FailureKind.REFUSED, detail="the model gave an empty text")


def run(
    write: Callable[[Write], Reply], params: Params | None = None, name: str = "hyde"
) -> tuple[Outcome, list[list[Call]]]:
    def answer(call: Call) -> Reply:
        match call:
            case Write():
                return write(call)
            case Retrieve():
                return found(A, B)
            case _:
                return Generated(text=r"So \boxed{14}.")

    sample = Sample(item=Item(ordinal=0, question=SHORT))
    result: tuple[Any, list[list[Call]]] = drive(registry.get(name).run(sample, params or Params(), {}), answer)
    return result


def numbered(call: Write) -> Reply:
    return Generated(text=f"Step {call.draw}: x.")


def retrieval(asked: list[list[Call]]) -> Retrieve:
    [search] = [call for step in asked for call in step if isinstance(call, Retrieve)]
    return search


def test_eight_solutions_are_drawn_from_one_prompt_by_default() -> None:
    _, asked = run(numbered)
    decoding = Decoding(temperature=0.7, max_tokens=512)
    slots = {"question": SHORT}
    assert asked[0] == [Write(template="hyde-solution", decoding=decoding, slots=slots, draw=n) for n in range(8)]


def test_the_search_is_made_with_all_texts_in_the_order_of_their_draws() -> None:
    _, asked = run(numbered, Params(hyde=HydeParams(documents=3), candidates=7))
    hypothetical = ("Step 0: x.", "Step 1: x.", "Step 2: x.")
    assert asked[1] == [Retrieve(question=SHORT, index="dense", k=7, hypothetical=hypothetical)]


def test_a_passage_is_written_where_the_style_asks_for_one() -> None:
    assert {call.template for call in draft_hypotheses("q", HydeParams(style="passage"))} == {"hyde-passage"}


def test_a_chinese_question_is_answered_in_chinese() -> None:
    assert {call.template for call in draft_hypotheses("求 $x$ 的值是多少？", HydeParams())} == {"hyde-solution-zh"}


def test_without_hypothetical_documents_it_asks_what_dense_asks() -> None:
    none = Params(hyde=HydeParams(documents=0))
    outcome, asked = run(numbered, none)
    plain, baseline = run(numbered, none, name="dense")
    assert asked == baseline
    assert outcome == plain


def test_what_was_made_up_is_never_context() -> None:
    outcome, asked = run(numbered, Params(context_size=5))
    assert asked[-1] == [Generate(template="cot", question=SHORT, context=(A, B))]
    assert outcome.context == (A, B)


def test_texts_that_were_not_written_are_left_out_and_counted() -> None:
    replies = {0: REFUSED, 1: Generated(text=" \n "), 2: Generated(text="x is 2"), 3: Generated(text="[[3]]")}
    outcome, asked = run(lambda call: replies[call.draw], Params(hyde=HydeParams(documents=4)))
    assert retrieval(asked).hypothetical == ("x is 2",)
    detail: dict[str, Any] = {"texts": 1, "failed": ["refused", "unparsed", "unparsed"]}
    assert outcome.trace.decisions == (Decision(stage="hyde", action="mean", detail=detail),)


def test_where_every_text_failed_the_question_is_searched_with_alone() -> None:
    lost = Failure(kind=FailureKind.CONNECTION)
    outcome, asked = run(lambda _: lost, Params(hyde=HydeParams(documents=2)))
    assert retrieval(asked) == Retrieve(question=SHORT, index="dense", k=10)
    [decision] = outcome.trace.decisions
    assert (decision.action, decision.fallback) == ("plain", "connection")
    assert decision.detail == {"texts": 0, "failed": ["connection", "connection"]}
    assert outcome.answer == "14"


@pytest.mark.parametrize(
    ("written", "searched"),
    [
        ("First.\n\n\nQuestion: another one", "First."),
        ("\n\n\nFirst.\n\nSecond.", "First.\n\nSecond."),
        ("First.", "First."),
    ],
)
def test_a_text_ends_where_the_authors_stop(written: str, searched: str) -> None:
    assert read_hypotheses("What comes first?", [Generated(text=written)]).texts == (searched,)


@pytest.mark.parametrize(
    ("question", "written", "searched"),
    [
        ("求圆的面积", "The area of a circle is pi r squared.", "The area of a circle is pi r squared."),
        ("What is the area of a circle?", "圆的面积等于π乘以半径的平方。", "圆的面积等于π乘以半径的平方。"),
        ("What is x?", "<think>Hm, 3?</think>\n\nSo x = 2.", "So x = 2."),
        ("What is x?", "Sure! Here is a worked solution:\n\nStep 1. x = 2.", "Step 1. x = 2."),
        ("What is x?", "当然，以下是解答：\nx = 2，因为它是根。", "x = 2，因为它是根。"),
        ("What is x?", "We have two equations:\nx = 2", "We have two equations:\nx = 2"),
        ("What is x?", "This is one of the questions on roots.", "This is one of the questions on roots."),
    ],
)
def test_a_text_in_any_language_is_searched_with_without_thoughts_and_introductions(
    question: str, written: str, searched: str
) -> None:
    assert read_hypotheses(question, [Generated(text=written)]).texts == (searched,)


@pytest.mark.parametrize(
    "written",
    [
        "I am a language model and cannot solve for x.", "I'm sorry, but x is not given.", "很抱歉，我无法求出x。",
        "14", "Sure!\nI cannot find x.", "<think>So x = 2", "<think>x</think>", "Here is a solution:",
        "[[2]]", "[[2]] as an AI",
    ],
)  # fmt: skip
def test_a_refusal_is_no_hypothetical_document(written: str) -> None:
    found = read_hypotheses("What is x in x = 2?", [Generated(text=written)])
    assert (found.texts, found.failures) == ((), (FailureKind.UNPARSED,))


def test_a_truncated_text_is_searched_with() -> None:
    assert read_hypotheses("Since when?", [Generated(text="Step 1. Since", truncated=True)]).texts == ("Step 1. Since",)


def test_a_text_that_would_flood_the_retriever_is_cut() -> None:
    [text] = read_hypotheses("x?", [Generated(text="x " * MAX_QUESTION)]).texts
    assert len(text) == MAX_QUESTION


def test_a_failed_search_ends_the_sample() -> None:
    steps = registry.get("hyde").run(Sample(item=Item(ordinal=0, question=SHORT)), Params(), {})
    with pytest.raises(CallFailed, match="timeout"):
        drive(steps, lambda call: numbered(call) if isinstance(call, Write) else Failure(kind=FailureKind.TIMEOUT))


def test_hypothetical_documents_are_written_in_the_judges_lane() -> None:
    pins = {"judge": Pin(model_id=1, hash="aa")}
    bound = [bind(call, Binding(pins=pins, params=Params()), 0) for call in draft_hypotheses(SHORT, HydeParams())]
    assert {call.lane for call in bound} == {Lane.JUDGE}
    assert len({call.key for call in bound}) == 8


# What a question wants, and whether it says enough.


def test_intents() -> None:
    cases = [
        ("Prove that $\\sqrt{2}$ is irrational.", "prove"),
        ("求证：三角形内角和为180度", "prove"),
        ("What is the difference between a ring and a field?", "compare"),
        ("What is the difference between permutations and combinations?", "compare"),
        ("What are the main differences between the two proofs?", "compare"),
        ("How does a ring differ from a field?", "compare"),
        ("Compare $2^3$ and $3^2$.", "compare"),
        ("Which is greater, $2^3$ or $3^2$?", "compare"),
        ("哪个更大：2^3还是3^2", "compare"),
        ("What is the positive difference between the two roots of $x^2-5x+6$?", "calculate"),
        ("The difference between two integers is 6. What is their sum?", "calculate"),
        ("What is the difference between Jenny's average and Blake's average?", "calculate"),
        ("Two numbers each differ from their reciprocals by 1. What are they?", "calculate"),
        ("What is the largest multiple of 37 which is less than 800?", "calculate"),
        ("After 15 years Cedric and Daniel compare their balances. Who has 10 dollars?", "calculate"),
        ("Why is 1 not prime?", "explain"),
        ("为什么0不能做除数？", "explain"),
        ("What is a prime number?", "define"),
        ("什么是素数？", "define"),
        ("What is the sum of two even numbers?", "calculate"),
        ("What is 2 plus 3?", "calculate"),
        ("小明一共有多少个苹果？", "calculate"),
        ("Simplify $\\sqrt{x}$.", "calculate"),
        ("Hello", "other"),
        ("", "other"),
    ]
    wrong = {question: found for question, wanted in cases if (found := named(classify_intent, question)) != wanted}
    assert wrong == {}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("RAG是什么", "define"),
        ("最新的AI技术是什么？", "define"),
        ("最新的AI技术是什么?", "define"),
        ("人工智能的最新进展", "explain"),
        ("最新的AI技术有哪些？", "explain"),
        ("解释大型语言模型LLM是什么?", "explain"),
        ("如何用Python实现一个基于区块链的去中心化投票系统?", "explain"),
        ("RAG系统的优缺点", "explain"),
        ("什么是RAG", "define"),
        ("什么叫Transformer？", "define"),
        ("RAG是什么意思", "define"),
        ("GPT-4是什么？", "define"),
        ("什么是GPT-4？", "define"),
        ("What is GPT-4?", "define"),
        ("CO2是什么", "define"),
        ("RAG是什么，有哪些应用？", "define"),
        ("RAG是什麼", "define"),
        ("What's RAG?", "define"),
        ("What does RAG stand for?", "define"),
        ("RAG为什么有效", "explain"),
        ("為什麼RAG有效？", "explain"),
        ("为何LLM会产生幻觉", "explain"),
        ("LLM怎么训练", "explain"),
        ("BM25怎样打分？", "explain"),
        ("How to train an LLM?", "explain"),
        ("explain一下Transformer", "explain"),
        ("RAG和微调有什么区别？", "compare"),
        ("比较BM25和TF-IDF", "compare"),
        ("BM25与TF-IDF的异同", "compare"),
        ("RAG跟微调对比", "compare"),
        ("RAG vs微调", "compare"),
        ("compare一下RAG和微调", "compare"),
        ("BM25和TF-IDF哪个好", "compare"),
        ("求證：√2是無理數", "prove"),
        ("prove一下√2是无理数", "prove"),
        ("圆的面积是什么？", "calculate"),
        ("12和18的最大公约数是什么？", "calculate"),
        ("2x+3=7，x的值是什么？", "calculate"),
        ("sin30是什么", "calculate"),
        ("概率是什么？", "define"),
        ("小明借了《十万个为什么》，每天看8页，多少天看完64页？", "calculate"),
        ("最新款手机的价格是多少元？", "calculate"),
        ("把苹果放进9个抽屉，不管怎么放，总有一个里至少有4个，至少有多少个苹果？", "calculate"),
        ("Lulu knows how to complete the square and gets $(x+m)^2-8$. What is $m$?", "calculate"),
        ("几何", "other"),
        ("你好", "other"),
    ],
)
def test_intents_of_questions_in_two_scripts(question: str, wanted: str) -> None:
    assert classify_intent(question) == wanted


def test_the_longest_question_is_classified_in_linear_time() -> None:
    question = "What is the difference between " + "a and " * (MAX_QUESTION // 6 - 10) + "1?"
    assert classify_intent(question) == "calculate"


def test_weights_follow_the_intent_only_if_a_job_says_so() -> None:
    own = FusionParams(dense=0.6, sparse=0.4, by_intent=True)
    assert [choose_weights(wanted, own) for wanted in ("define", "calculate", "other")] == [
        CONCEPT_WEIGHTS,
        EXACT_WEIGHTS,
        (0.6, 0.4),
    ]
    assert choose_weights("define", FusionParams()) == (0.5, 0.5)


def test_questions_that_say_too_little() -> None:
    cases = [
        ("Hello", "generic"),
        ("系统", "generic"),
        ("测试", "generic"),
        ("What is the answer to this question?", "generic"),
        ("?", None),
        ("", None),
        ("prime", "short"),
        ("什么是素数？", "short"),
        ("Vieta's formulas", None),
        ("What is 2 plus 3?", None),
        ("Simplify $\\frac{1}{2}$.", None),
        ("12和18的最大公约数", None),
    ]
    wrong = {question: found for question, vague in cases if (found := named(classify_vagueness, question)) != vague}
    assert wrong == {}


@needs("math")
def test_hardly_any_real_problem_says_too_little() -> None:
    math = (DATA / "math" / "train.jsonl").read_text("utf-8").splitlines()
    cmath = (DATA / "zh" / "cmath-test.jsonl").read_text("utf-8").splitlines()
    assert Counter(classify_vagueness(json.loads(line)["problem"]) for line in math) == {None: 7490, "short": 10}
    assert Counter(classify_vagueness(json.loads(line)["question"]) for line in cmath) == {None: 1098}


def test_rules_make_a_question_ready() -> None:
    ready = enhance("Please find the gcd and the probablity of 3", EnhanceParams(), FusionParams())
    assert ready.question == "find the gcd and the probability of 3"
    assert ready.widened.startswith("find the gcd and the probability of 3 greatest common divisor ")
    assert [(decision.stage, decision.action) for decision in ready.decisions] == [
        ("intent", "calculate"),
        ("clean", "cleaned"),
        ("correct", "corrected"),
        ("synonyms", "widened"),
    ]
    assert ready.decisions[2].detail == {"probablity": "probability"}


def test_parts_can_be_left_out() -> None:
    ready = enhance(
        "Please find the gcd and the probablity of 3", EnhanceParams(synonyms=False, correct=False), FusionParams()
    )
    assert ready.question == ready.widened == "find the gcd and the probablity of 3"


def test_a_generic_question_is_not_searched_by_words() -> None:
    assert enhance("Hello", EnhanceParams(), FusionParams()).sparse == 0
    assert enhance("Hello", EnhanceParams(), FusionParams(dense=0)).sparse == 0.5
    assert enhance("prime", EnhanceParams(), FusionParams()).sparse == 0.5
