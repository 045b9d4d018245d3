"""Answers in replies: which are found, by which rule, and which are not taken for one."""

import pytest

from shared.mathtext.answers import remove_reasoning
from shared.rag.grading import (
    extract_boxed,
    extract_choice,
    extract_final,
    extract_mathematics,
    extract_number,
    read_letter,
    take_whole,
)
from shared.samples import ExtractedBy, Extraction


@pytest.mark.parametrize(
    ("reply", "answer", "rule"),
    [
        (r"So it is $\boxed{18}$. The answer is 19.", "18", ExtractedBy.BOXED),
        ("She sells 9 eggs.\n#### 18", "18", ExtractedBy.MARKED),
        ("#### Step 1\n3+4=7\n#### Step 2\nThe answer is 7", "7", ExtractedBy.STATED),
        ("ANSWER: 18", "18", ExtractedBy.MARKED),
        ("**Answer:** 18", "18", ExtractedBy.MARKED),
        ("**Answer: 7**", "7", ExtractedBy.MARKED),
        ("Answer:\n\n7", "7", ExtractedBy.MARKED),
        ("<answer>18</answer>", "18", ExtractedBy.MARKED),
        ("<answer>\n18\n", "18", ExtractedBy.MARKED),
        ("**Final Answer**\n\n\\[\nx = 5\n\\]", "x = 5", ExtractedBy.MARKED),
        ("### Answer\n18 apples", "18 apples", ExtractedBy.MARKED),
        (r"$$\text{Answer: } 7$$", "7", ExtractedBy.STATED),
        ("The answer is 18.", "18", ExtractedBy.STATED),
        ("Therefore, the final answer is: $5$ apples, because he ate two.", "5 apples", ExtractedBy.STATED),
        ("So the answer is $18 per day.", "$18 per day", ExtractedBy.STATED),
        ("The answer (in cm) is 42.", "42", ExtractedBy.STATED),
        ("Final answer = 42", "42", ExtractedBy.STATED),
        ("The answer should be 3.5.", "3.5", ExtractedBy.STATED),
        ("The solutions are $x=2$ and $x=3$.", "x=2 and x=3", ExtractedBy.STATED),
        ("The answer is not 5. The answer is 6", "6", ExtractedBy.STATED),
        ("the answer is **18**.", "18", ExtractedBy.STATED),
        ("The answer is 7.\n\nQ: What is the answer?", "7", ExtractedBy.STATED),
        ("Answer: To find the number, we first compute 3+4 = 7.\nThe answer is 7.", "7", ExtractedBy.STATED),
        ("Final Answer: The final answer is $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}", ExtractedBy.STATED),
        ("所以答案为：$x=3$。", "x=3", ExtractedBy.STATED),
        ("答案是18。因为", "18", ExtractedBy.STATED),
        ("答：36人", "36人", ExtractedBy.MARKED),
        ("18", "18", ExtractedBy.WHOLE),
        (" $\\frac{1}{2}$.\n", r"\frac{1}{2}", ExtractedBy.WHOLE),
        ("x = 5", "x = 5", ExtractedBy.WHOLE),
        ("18 apples", "18 apples", ExtractedBy.WHOLE),
        ("Monday", "Monday", ExtractedBy.WHOLE),
    ],
)
def test_a_mathematical_answer_is_boxed_marked_or_stated(reply: str, answer: str, rule: ExtractedBy) -> None:
    assert extract_mathematics(reply) == (answer, Extraction.OK, rule)


@pytest.mark.parametrize(
    ("reply", "extraction"),
    [
        ("I do not know.", Extraction.MISSING),
        ("I get 18", Extraction.MISSING),
        ("18 is what I get from it", Extraction.MISSING),
        ("First add 3.\nThen 18", Extraction.MISSING),
        ("My answer is correct.", Extraction.MISSING),
        ("The answer is to add both numbers and divide what they give by two.", Extraction.MISSING),
        (r"The final answer is $\boxed{", Extraction.UNBALANCED),
        (r"\boxed{2", Extraction.UNBALANCED),
        (" \n", Extraction.EMPTY),
        (r"<think>It may be \boxed{16}, but let me", Extraction.ONLY_REASONING),
        (r"<think>It may be \boxed{1}.</think>", Extraction.ONLY_REASONING),
        ("<think>It may be \\boxed{1}.</think>\nI could not decide.", Extraction.MISSING),
        ("reasoning: \\boxed{9}\n\n### Response\nSorry, I cannot answer.", Extraction.MISSING),
    ],
)
def test_a_reply_without_an_answer_says_why(reply: str, extraction: Extraction) -> None:
    assert extract_mathematics(reply) == (None, extraction, None)


def test_the_last_number_counts_only_where_the_grader_asks_for_it() -> None:
    reply = "She has 5 and 7, so $1,212.50 in all."
    assert extract_number(reply) == ("$1,212.50", Extraction.OK, ExtractedBy.LAST_NUMBER)
    assert extract_number("It has 3 parts. The answer is 7, of 9.").rule is ExtractedBy.STATED
    assert extract_mathematics(reply).answer is None
    assert extract_number("No number.").extraction is Extraction.MISSING


def test_only_a_box_counts_where_the_grader_asks_for_one() -> None:
    assert extract_boxed("The answer is 7.").answer is None


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Paris", "Paris"),
        ("It is in the north.\nAnswer: Washington, D.C.", "Washington, D.C."),
        ("The answer is Paris. It lies in France.", "Paris"),
        ("Final Answer: The final answer is Paris. I hope it is correct.", "Paris"),
        ("The answer is Dr. Smith of J. K. Rowling fame.", "Dr. Smith of J. K. Rowling fame"),
        ("<answer>Paris</answer>", "Paris"),
        ("<think>London?</think>**Paris**", "Paris"),
        (r"\boxed{\text{Paris}}", "Paris"),
        ('"Paris"', "Paris"),
    ],
)
def test_an_answer_in_words_is_the_whole_reply_unless_it_states_one(reply: str, answer: str) -> None:
    assert extract_final(reply).answer == answer


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("Answer: B because it is larger.", "B"),
        ("B is correct.", "B"),
        ("The correct answer is option B, since the others are false.", "B"),
        ("The best option is D because", "D"),
        ("I would choose C.", "C"),
        ("A is wrong. B is correct.", "B"),
        ("(A) is incorrect, (B) is the correct answer", "B"),
        ("Among A, B, C and D, C is the correct answer.", "C"),
        ("选B", "B"),
        ("故选：B。", "B"),
        ("选项B正确，选项A错误", "B"),
        ("答案是B", "B"),
        ("**Answer: A**", "A"),
        ("A dog is an animal. The answer is A", "A"),
        ("Answer: B - Paris", "B"),
        ("B. Paris\n\nA is wrong since x", "B"),
        (r"\boxed{\textbf{(C)} 12}", "C"),
        ("<think>B or C?</think>C", "C"),
    ],
)
def test_a_choice_is_found_in_what_people_and_models_write(reply: str, letter: str) -> None:
    assert extract_choice(reply).answer == letter


@pytest.mark.parametrize("said", ["B or C", "A and B", "B/C", "not C", "B is not correct", "A dog", "neither A nor B"])
def test_who_names_several_choices_or_refuses_one_has_chosen_none(said: str) -> None:
    assert read_letter(said) is None


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("<think>a</think> b", "b"),
        ("<THINKING>a</THINKING> b", "b"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("<think>a<think>b</think>c</think> d", "d"),
        ("x<think>y</think>z", "xz"),
        ("[THINK]a[/THINK]5", "5"),
        ("<|begin_of_thought|>a<|end_of_thought|>5", "5"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>", "5"),
        ("analysisWe need 2+3.assistantfinal5", "5"),
        ("1 < 2 and <b>this</b> stays", "1 < 2 and <b>this</b> stays"),
    ],
)
def test_what_a_model_thinks_aloud_is_removed(reply: str, rest: str) -> None:
    assert remove_reasoning(reply) == rest


def test_a_rubric_rates_the_reply_without_its_reasoning() -> None:
    assert take_whole("<think>Lyon?</think> It is Paris.").answer == "It is Paris."
    assert take_whole("<think>Lyon?").extraction is Extraction.ONLY_REASONING


@pytest.mark.parametrize(
    "part", [r"\boxed", r"\text{answer", "The answer is ", "Answer\n\\[", "<answer>", r"\(", "#### 1\n", " ", "<think>"]
)
def test_a_hostile_reply_does_not_keep_the_reader_for_minutes(part: str) -> None:
    for extract in (extract_mathematics, extract_choice):
        extract(part * (200_000 // len(part)))
