"""Relations that texts name."""

import pytest

from shared.rag.guidance import RelationNames, list_nearest

NAMES = RelationNames([
    ("Consult", "consult"), ("Make_a_visit", "make a visit"), ("Visit", "visit"), ("Zvisit", "visit"), ("/p/b", "国籍"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("Whom did Ann CONSULT?", "Consult"),
        ("Did Ann make a visit, and consult?", "Make_a_visit"),
        ("Did Ann make the visit?", "Make_a_visit"),
        ("A visit to whom?", "Visit"),
        ("Who was consulted?", None),
        ("Anna 的国籍是什么？", "/p/b"),
        ("", None),
    ],
)
def test_the_longest_phrase_that_stands_in_the_text_names_the_relation(text: str, relation: str | None) -> None:
    assert NAMES.find_in(text) == relation


def test_without_relations_nothing_is_named() -> None:
    assert RelationNames([]).find_in("Whom did Ann consult?") is None


def test_the_phrases_nearest_to_the_question_come_first() -> None:
    phrases = {"a": "host a visit", "b": "make a visit", "c": "consult", "d": "consult"}
    assert list_nearest("Whom does Ann make a visit to?", phrases) == ["make a visit", "host a visit", "consult"]
    assert list_nearest("?", phrases, most=1) == ["consult"]
