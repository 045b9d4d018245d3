from collections.abc import Iterator

import pytest

from mathrag.reasoning import remove_reasoning
from shared.calls import MATHEMATICAL, Expected, Rules
from shared.params import GradingParams, Params
from shared.rag import grading
from shared.rag.grading import (
    InvalidGold,
    choose_marking_grader,
    extract_boxed,
    extract_choice,
    extract_final,
    extract_mathematics,
    extract_number,
    find_answer_rank,
    get_grader,
    list_answer_phrases,
    mark,
    read_letter,
    take_whole,
)
from shared.rag.text import normalise_words
from shared.replies import Document, Marked
from shared.samples import Candidate, ExtractedBy, Extraction, Item, Library, Outcome
from shared.storage.provenance import find_answering_text, find_extractor
from tests.unit.cases import named

# Where an answer occurs in what was found, by the normalised words of its grader.


TEXTS = ("Time 3 Barack Obama visit Kenya.", "Time 4 Angela Merkel host the U.S. president.", "Paris, in France")
LIBRARY = {str(place): Document(text=text) for place, text in enumerate(TEXTS)}
CANDIDATES = [Candidate(document=str(place), rank=place + 1) for place in range(len(TEXTS))]


def rank(gold: str, *golds: str, grader: str = "text", library: Library = LIBRARY, separators: str = "") -> int | None:
    item = Item(ordinal=0, question="?", gold=gold, expected=Expected(golds=golds))
    grading = GradingParams(grader=grader, separators=separators)  # type: ignore[arg-type]
    return find_answer_rank(CANDIDATES[::-1], list_answer_phrases(item, grading), library)


@pytest.mark.parametrize(
    ("gold", "found"),
    [
        ("the KENYA", 1),
        ("Angela Merkel", 2),
        ("US president", 2),
        ("Paris in France", 3),
        ("Merkel Angela", None),
        ("Ken", None),
        ("Kenya Time", None),
    ],
)
def test_an_answer_is_found_where_its_words_follow_each_other(gold: str, found: int | None) -> None:
    assert rank(gold) == found


def test_the_first_document_with_any_of_the_answers_counts() -> None:
    assert rank("Paris", "Merkel") == 2


def test_any_member_of_a_set_counts() -> None:
    assert rank("{Rome, Angela Merkel}", grader="set") == 2
    assert rank("{Rome, Angela Merkel}", grader="text") is None
    assert rank("Rome | Kenya", grader="set", separators="|") == 1


def test_a_problem_is_a_part_of_its_document() -> None:
    assert rank("Rome", library={**LIBRARY, "1": Document(problem="Where is Rome?", text="Here.")}) == 2


@pytest.mark.parametrize("grader", ["math", "", "choice", "regex", "rubric"])
def test_gold_answers_that_are_no_texts_are_not_looked_for(grader: str) -> None:
    item = Item(ordinal=0, question="?", gold="Kenya")
    assert list_answer_phrases(item, GradingParams(grader=grader)) == set()  # type: ignore[arg-type]


def test_an_item_without_gold_answers_has_nothing_to_look_for() -> None:
    text, sets = GradingParams(grader="text"), GradingParams(grader="set")
    assert list_answer_phrases(Item(ordinal=0, question="?"), text) == set()
    assert list_answer_phrases(Item(ordinal=0, question="?", gold=" "), text) == set()
    assert list_answer_phrases(Item(ordinal=0, question="?", gold="{}"), sets) == set()


class Read(dict[str, Document]):
    def __init__(self) -> None:
        super().__init__(LIBRARY)
        self.reads: list[str] = []

    def __getitem__(self, document: str) -> Document:
        self.reads.append(document)
        return super().__getitem__(document)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all documents are read")


def test_a_thousand_answers_read_each_document_once_and_none_behind_the_first_with_one() -> None:
    library = Read()
    many = [f"nobody {number}" for number in range(1000)]
    assert rank("Merkel", *many, library=library) == 2
    assert library.reads == ["0", "1"]


# Answers in replies: which are found, by which rule, and which are not taken for one.


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


# Graders beyond mathematics: how an answer is found in a reply, and when it is right.

CITIES = ("Bern", "Paris", "Rome")


def test_each_grader_finds_the_answer_in_a_reply() -> None:
    cases = [
        ("math", r"The capital is \boxed{5}", "5"),
        ("math", "The answer is 5.", "5"),
        ("math-dataset", "The answer is 5.", "5"),
        ("last-number", "There are 3 and 5.", "5"),
        ("text", r"So it is \boxed{\text{New York}}.", "New York"),
        ("text", "It has the tower.\nAnswer: Paris, France\n", "Paris, France"),
        ("text", "The final answer is **Paris**.", "Paris"),
        ("text", "答案是：北京", "北京"),
        ("text", 'The answer is "no"\nOn reflection, the answer is "yes"', "yes"),
        ("exact", " The capital is Paris\n", "The capital is Paris"),
        ("choice", "Bern is no candidate, so the answer is (B).", "B"),
        ("choice", r"\boxed{\text{B}}", "B"),
        ("choice", "Paris", "Paris"),
        ("rubric", r"First this, then \boxed{that}. ", r"First this, then \boxed{that}."),
    ]
    wrong = {
        (name, reply): found
        for name, reply, answer in cases
        if (found := named(get_grader(name).extract, reply)[:2]) != (answer, Extraction.OK)
    }
    assert wrong == {}


def test_mathematics_takes_no_number_that_is_not_given_as_the_answer() -> None:
    assert get_grader("math").extract("There are 3 and 5.") == (None, Extraction.MISSING, None)


@pytest.mark.parametrize(
    ("answer", "gold", "by_math", "by_dataset"),
    [
        (r"5\%", "5", False, True),
        ("50", r"50\%", False, True),
        ("y=5", "x=5", False, True),
        ("2/4", r"\frac12", True, True),
        (r"0.05", r"5\%", True, True),
        ("6", "5", False, False),
        ("6%", "5", False, False),
    ],
)
def test_the_conventions_of_math_are_a_grader_of_their_own(
    answer: str, gold: str, *, by_math: bool, by_dataset: bool
) -> None:
    assert mark(answer, gold, Rules(grader="math")).correct is by_math
    assert mark(answer, gold, Rules(grader="math-dataset")).correct is by_dataset


def test_sampled_answers_are_compared_by_their_values_alone() -> None:
    assert [choose_marking_grader(name, peers=True) for name in MATHEMATICAL] == ["math"] * 3
    assert [choose_marking_grader(name) for name in MATHEMATICAL] == ["math", "math-dataset", "math"]


def test_a_reply_with_nothing_in_it_has_no_answer() -> None:
    assert get_grader("text").extract('""') == (None, Extraction.MISSING, None)


def test_an_answer_is_right_by_the_grader_that_was_chosen() -> None:
    cases = [
        ("exact", "Paris", "Paris", True),
        ("exact", "paris", "Paris", False),
        ("text", "  The  PARIS! ", "Paris", True),
        ("text", "Ｐａｒｉｓ", "Paris", True),
        ("text", "The capital is Paris", "Paris", False),
        ("text", "-5", "5", False),
        ("text", "\u22125", "-5", True),
        ("text", "3.5", "35", False),
        ("text", ".5", "5", False),
        ("text", "12:30", "1230", False),
        ("text", "1,000", "1000", True),
        ("text", "50 %", "50%", True),
        ("text", "50", "50%", False),
        ("text", "x > 0", "x < 0", False),
        ("text", "The", "A", False),
        ("text", "?", "!", False),
        ("text", "北京。", "北京", True),
        ("contains", "The capital is Paris.", "Paris", True),
        ("contains", "The capital is Paris.", "Par", False),
        ("contains", "首都是北京", "北京", True),
        ("regex", "The colour is red", r"colou?r is (red|blue)", True),
        ("regex", "Colour", r"^colour$", False),
        ("set", r"\{b, a\}", "a, b", True),
        ("set", "red, green and blue", "blue\nred\ngreen", True),
        ("set", "a, a, b", "b; a", True),
        ("set", "a", "a, b", False),
        ("set", "a, b, c", "a, b", False),
    ]
    wrong = {
        (name, answer, gold): found
        for name, answer, gold, correct in cases
        if (found := named(mark, answer, gold, Rules(grader=name))).correct is not correct
    }
    assert wrong == {}


def test_token_f1_is_squads() -> None:
    cases = [
        ("the capital is Paris", "Paris", 0.5),
        ("Paris", "the city of Paris", 0.5),
        ("首都是北京", "北京", 4 / 7),
        ("Lyon", "Paris", 0.0),
        ("Paris, Paris", "Paris", 2 / 3),
    ]
    wrong = {}
    for answer, gold, score in cases:
        found = named(mark, answer, gold, Rules(grader="f1", threshold=0.5))
        if found != Marked(correct=score >= 0.5, strict=False, score=pytest.approx(score)):
            wrong[answer, gold] = found
    assert wrong == {}


def test_a_choice_is_stated_by_its_letter_or_its_text() -> None:
    cases = [
        ("(B)", True), ("B.", True), ("b", True), ("**B**", True), ("B) Paris", True), ("The answer is B", True),
        ("Option B", True), ("Paris", True), ("It is the city of Paris", True), ("I choose (B), of course", True),
        ("A", False), ("(A) or (B)", False), ("A dog", False), ("Paris or Rome", False), ("Z", False), ("", False),
    ]  # fmt: skip
    cases += [
        (r"\text{B}", True), (r"\textbf{(B)}", True), ("B because of the tower", True), ("Option B, since it is", True),
        ("B is correct", True), ("选B", True), ("B is not correct", False), ("1 Paris", False), ("B/C", False),
        ("<think>A</think>B", True),
    ]  # fmt: skip
    rules = Rules(grader="choice", choices=CITIES)
    wrong = {
        answer: found for answer, right in cases if (found := named(mark, answer, "B", rules)).correct is not right
    }
    assert wrong == {}


def test_the_best_of_several_gold_answers_counts() -> None:
    rules = Rules(grader="f1", golds=("city of light", "Paris"), threshold=0.6)
    assert mark("Paris", "capital of France", rules) == Marked(correct=True, strict=True, score=1.0)


def test_no_answer_is_a_wrong_answer() -> None:
    assert mark(None, "Paris", Rules(grader="f1")).correct is False


def test_a_set_has_the_separators_that_it_is_given() -> None:
    assert mark("Rome|Paris, Texas", "Paris, Texas|Rome", Rules(grader="set", separators="|")).correct
    assert not mark("Texas|Paris|Rome", "Paris, Texas|Rome", Rules(grader="set", separators="|")).correct


@pytest.mark.parametrize("gold", ["(", "(?P<n>", "a" * 1001, "(" * 900])
def test_what_is_no_regular_expression_is_refused_in_words(gold: str) -> None:
    with pytest.raises(InvalidGold, match="regular expression"):
        grading.check_gold("regex", gold)


def test_an_unknown_grader_is_refused_with_those_that_exist() -> None:
    with pytest.raises(LookupError, match="unknown grader 'fuzzy'; choose one of math, math-dataset, last-number"):
        get_grader("fuzzy")


def test_words_are_never_nothing() -> None:
    assert (normalise_words("The"), normalise_words("?!"), normalise_words("")) == (["the"], ["?!"], [])


@pytest.mark.parametrize(("name", "text"), [("text", "Answer: Paris"), ("rubric", "Answer: Rome")])
def test_of_several_texts_the_one_with_the_answer_is_shown_as_the_jobs_grader_reads_it(name: str, text: str) -> None:
    outcome = Outcome(answer="Paris", extraction=Extraction.OK)
    extract = find_extractor(Params(grading=GradingParams(grader=name)))
    assert find_answering_text(["Answer: Paris", "Answer: Rome"], outcome, extract) == text
