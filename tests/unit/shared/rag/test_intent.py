"""What a question wants, and whether it says enough."""

import json
from collections import Counter

import pytest

from shared.calls import MAX_QUESTION
from shared.params import EnhanceParams, FusionParams
from shared.rag.rewriting import (
    CONCEPT_WEIGHTS,
    EXACT_WEIGHTS,
    choose_weights,
    classify_intent,
    classify_vagueness,
    enhance,
)
from shared.settings import REPOSITORY
from tests.unit.cases import named

DATA = REPOSITORY.parent / "shared" / "data"


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


@pytest.mark.skipif(not DATA.exists(), reason="the shared data are not here")
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
