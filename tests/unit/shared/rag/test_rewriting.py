"""What becomes of the judge model's replies, which may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.calls import Write
from shared.contracts.params import EnhanceParams
from shared.contracts.replies import Failure, FailureKind, Generated
from shared.rag.rewriting import (
    WrittenQueries,
    ask_for_keywords,
    decompose,
    read_keywords,
    read_rewrite,
    read_subqueries,
    rewrite,
)

QUESTION = "What is the greatest common divisor of 12 and 18?"
PARAMS = EnhanceParams()


def read(text: str, *, truncated: bool = False) -> WrittenQueries:
    """A rewriting of the question."""
    return read_rewrite(QUESTION, Generated(text=text, truncated=truncated))


def split(text: str, question: str = QUESTION, *, truncated: bool = False) -> WrittenQueries:
    """Its sub-queries."""
    return read_subqueries(question, Generated(text=text, truncated=truncated), PARAMS)


def test_the_judge_is_asked_in_the_language_of_the_question() -> None:
    """With the job's decoding."""
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
    ],
)
def test_a_rewriting_is_its_first_line_bare(text: str) -> None:
    """Models put labels, numbers and quotes around it."""
    assert read(text).queries == ("gcd of 12 and 18",)
    assert (read(text).decision.action, read(text).decision.fallback) == ("written", None)


@pytest.mark.parametrize("text", [QUESTION, QUESTION.upper(), "  what is the greatest common divisor  of 12 and 18 "])
def test_the_same_question_again_is_no_failure(text: str) -> None:
    """The model found nothing to change."""
    assert read(text) == split(text)._replace(decision=read(text).decision)
    assert (read(text).queries, read(text).decision.action, read(text).decision.fallback) == ((), "unchanged", None)


@pytest.mark.parametrize("text", ["[[3]]", "???", "Query:", "banana bread", "  \n ", "gcd of 12 and 18 " * 20, '"""'])
def test_what_cannot_be_searched_with_leaves_the_original(text: str) -> None:
    """No words, words about something else, or a whole essay: counted as a reply that could not be read."""
    assert read(text).queries == ()
    assert (read(text).decision.action, read(text).decision.fallback) == ("original", "unparsed")


def test_a_failed_call_leaves_the_original() -> None:
    """Seed document 001: enhancement failed, so the original query is used."""
    gone = Failure(kind=FailureKind.CONNECTION)
    assert read_rewrite(QUESTION, gone).decision.fallback == "connection"
    assert read_subqueries(QUESTION, gone, PARAMS).decision.fallback == "connection"


def test_a_line_that_was_cut_off_is_left_out() -> None:
    """It may end in the middle of a formula; whole lines before it are as good as ever."""
    assert read("gcd of 12 and", truncated=True).decision.fallback == "truncated"
    assert split("factors of 12\nfactors of 18\ngcd of", truncated=True).queries == ("factors of 12", "factors of 18")


def test_sub_queries_are_whole_lines_each_once_and_not_too_many() -> None:
    """Without numbers, in order; at most three by default."""
    text = "1. Factors of 12?\n2) factors of 18\n\n- factors of 12\n(3) Which factors are common?\n4. greatest divisor"
    assert split(text).queries == ("Factors of 12?", "factors of 18", "Which factors are common?")
    assert split("子问题1：12的约数\n①18的约数", "求12和18的公约数").queries == ("12的约数", "18的约数")


def test_numbers_that_begin_a_question_stay() -> None:
    """12.5 is no item, and neither is 18."""
    assert split("12.5 divided by 12\n18 divided by 12").queries == ("12.5 divided by 12", "18 divided by 12")


def test_sub_queries_that_say_nothing_are_left_out() -> None:
    """One good line among garbage is one sub-query."""
    assert split(f"{QUESTION}\nbanana\nfactors of 12\n[[3]]").queries == ("factors of 12",)


@given(st.text(max_size=80), st.text(max_size=200), st.booleans())
def test_no_reply_is_too_odd(question: str, text: str, truncated: bool) -> None:
    """Nothing raises; what comes out is new, different and short enough; and either queries or a reason."""
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
    """One line, without the label that the prompt ends with."""
    question = "What is the area of the triangle?"
    found = read_keywords(question, Generated(text=text))
    assert found.queries == ("area, triangle",)
    assert (found.decision.stage, found.decision.action) == ("keywords", "written")


def test_keywords_of_something_else_leave_the_question() -> None:
    """As a rewritten query would."""
    found = read_keywords("What is the area of the triangle?", Generated(text="loud music"))
    assert (found.queries, found.decision.fallback) == ((), "unparsed")
    assert ask_for_keywords("What is it?", EnhanceParams()).template == "keywords"
