"""Near-duplicates: of a question in a corpus, of problems, of documents."""

import hashlib
from itertools import product
from string import ascii_lowercase
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.corpus import print_leaks
from mathrag.reading.paths import corpus_lines, dataset_lines
from services.orchestrator.api.examples import make_example
from services.retriever.builds import make_indexed_text
from services.retriever.index import Bm25, Faiss, IndexMatch
from services.retriever.searches import SPARE, IndexSearch, take_page
from shared.calls import Duplicates
from shared.ingest.datasets import read_corpus, read_dataset
from shared.models.embedding import StaticEmbedder
from shared.rag.duplicates import (
    ComparedDocument,
    QuestionDuplicate,
    QuestionIndex,
    find_left_out,
    has_answer,
    has_same_words,
    is_left_out,
    is_near_duplicate,
    is_same_text,
    list_problem_tokens,
    list_tokens,
    measure_overlap,
    note_resembling_documents,
)
from shared.rag.retrieval import drop_duplicates as drop_same_texts
from shared.rag.retrieval import hash_content
from shared.replies import Document, Hit, Retrieved
from shared.samples import DatasetItem
from shared.settings import REPOSITORY
from tests.unit.datasets import DATA, needs

# Near-duplicates of a question.


TEN = "one two three four five six seven eight nine ten"
"""Eight shingles."""
LONG = "the product of all of the roots of this monic polynomial is the last coefficient of"


def document(number: int) -> str:
    return f"{number:064x}"


def twin(question: str) -> ComparedDocument:
    return ComparedDocument(Document(problem=question, text=""))


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("What is 1+1?", "what IS\n1 + 1 ?"),
        (r"Compute $\dfrac{1}{2}$.", r"Compute \(\frac{1}{2}\)"),
        (r"where $p\neq 0$, find $x \leq 3$", r"where $p \ne 0$, find $x ≤ 3$."),
        (r"$\left(x, y\right)$", "$(x,y)$"),
        ("40{,}000 apples", "40,000 apples"),
        ("a four-scoop cone!", "a four scoop cone"),
        ("计算３＋４。", "计算 3+4"),
        ("$x^{2}$", "$x^2$"),
        ("+", "+"),
    ],
)
def test_spelling_blanks_and_formatting_make_no_other_text(question: str, problem: str) -> None:
    assert is_same_text(question, problem)
    assert is_near_duplicate(question, problem)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5+3", "5-3"),
        ("$x^2-5x+6>0$", "$x^2-5x+6<0$"),
        (r"$x \le 3$", "$x < 3$"),
        ("$n!$", "$n$"),
        ("$-150$", "$150$"),
        ("$(p+1)$ by 9", "$(p+1)$ by 8"),
        ("$x$", "$y$"),
        (r"$\sin x$", r"$\cos x$"),
        ("$x^{12}$", "$x^12$"),
        ("five apples", "six apples"),
        ("五个苹果", "六个苹果"),
        ("1:2", "1,2"),
        ("x²", "x2"),
    ],
)
def test_another_number_operator_or_relation_is_another_problem(one: str, other: str) -> None:
    assert not is_near_duplicate(f"{LONG} {one}", f"{LONG} {other}")
    assert not is_near_duplicate(one, other)


@pytest.mark.parametrize(
    ("problem", "near"),
    [(f"{LONG} 7 here", True), (f"{LONG} 7 here below", True), (f"{LONG} 7 in the box below here", False), ("", False)],
)
def test_a_reworded_problem_keeps_four_fifths_of_its_shingles(problem: str, *, near: bool) -> None:
    assert is_near_duplicate(f"{LONG} 7", problem) is near
    assert not is_same_text(f"{LONG} 7", problem)


def test_a_passage_without_a_problem_is_nobodys_duplicate() -> None:
    assert not is_same_text("", "")
    assert not is_near_duplicate("", "")


@pytest.mark.parametrize(
    ("text", "gold", "has"),
    [
        (r"so \boxed{\dfrac{1}{2}}", r"\frac{1}{2}", True),
        (r"first \boxed{3}, then \boxed{4}", "3", False),
        ("The capital is Paris.", "paris", True),
        ("12 is not among 112 and 1.2", "2", False),
        ("nothing", "", False),
        ("The share is ½ of it.", r"\frac12", True),
        (r"an angle of $60^{\circ}$", "60°", True),
        (r"an angle of $60^{\circ}$", "6", False),
    ],
)
def test_a_solution_has_the_answer_in_its_box_or_in_its_words(text: str, gold: str, *, has: bool) -> None:
    assert has_answer(text, gold) is has


WRAPPED = f"You will be graded. Use no tools and fewer than two hundred words, no JSON and no prose. {LONG} 7"


@pytest.mark.parametrize(
    ("question", "document", "share"),
    [
        (f"{LONG} 7", Document(problem=f"{LONG} 7", text=""), 1),
        (f"{LONG} 7", Document(problem=f"{LONG} 8", text=""), 14 / 15),
        (f"{LONG} 7", Document(problem="what is music", text=f"{LONG} 7"), 0),
        (f"{LONG} 7", Document(text=f"Exercise 3. {LONG} $7$. Solution. It is 5, because 2 + 3 = 5."), 1),
        (WRAPPED, Document(problem=f"{LONG} 7", text=""), 1),
        (WRAPPED, Document(problem="fewer than two hundred", text=""), 2 / 33),
        ("五个苹果和三个梨", Document(problem="五个苹果和四个梨", text=""), 2 / 6),
        ("", Document(text="what is music"), 0),
        ("?", Document(problem="!", text=""), 0),
    ],
)
def test_overlap_is_the_share_of_the_question_or_of_the_problem_inside_it(
    question: str, document: Document, share: float
) -> None:
    assert measure_overlap(question, document) == pytest.approx(share)


def test_what_nearly_repeats_the_question_and_stood_in_the_prompt_is_noted() -> None:
    near, other = Document(problem=f"{LONG} 8", text="6"), Document(problem="what is music", text="sound")
    library = {each.hash: each for each in (near, other)}
    noted = note_resembling_documents(f"{LONG} 7", [other.hash, near.hash], library)
    assert [(each.stage, each.action, each.detail["document"]) for each in noted] == [("duplicates", "kept", near.hash)]
    assert noted[0].detail["share"] == pytest.approx(14 / 15)


REWORDED = Document(problem=f"{LONG} 7 here", text=r"\boxed{5}")
SAME = Document(problem=f"{LONG.upper()} 7.", text=r"\boxed{5}")
OTHER_SIGN = Document(problem=f"{LONG} -7", text=r"\boxed{5}")
OTHER_SPELLING = Document(problem=f"Problem: {LONG} $7$. Let's think step by step.", text=r"\boxed{5}")


@pytest.mark.parametrize(
    ("rule", "gold", "left_out"),
    [
        ("off", "5", set()),
        ("same-text", "5", {"same", "spelling"}),
        ("same-answer", "5", {"same", "spelling", "reworded"}),
        ("same-answer", "6", {"same", "spelling"}),
        ("same-answer", "", {"same", "spelling"}),
        ("same-words", "6", {"same", "reworded", "sign"}),
    ],
)
def test_each_rule_leaves_out_what_it_says(rule: Duplicates, gold: str, left_out: set[str]) -> None:
    documents = {"same": SAME, "reworded": REWORDED, "sign": OTHER_SIGN, "spelling": OTHER_SPELLING}
    found = {name for name, each in documents.items() if is_left_out(rule, f"{LONG} 7", gold, each)}
    assert found == left_out


@pytest.mark.parametrize("rule", get_args(Duplicates))
def test_a_search_leaves_out_those_of_many_documents_that_each_rule_leaves_out(rule: Duplicates) -> None:
    problems = [f"{LONG} 7", f"{LONG} $7$.", f"{LONG} 7 here", f"{LONG} 8", LONG, "Who wrote Faust?", "$$", "", TEN]
    documents = {each: Document(problem=each, text=r"so \boxed{5}") for each in problems}
    compared = {number: ComparedDocument(each) for number, each in documents.items()}
    for question in problems:
        alone = [number for number, each in documents.items() if is_left_out(rule, question, "5", each)]
        assert find_left_out(rule, question, "5", compared) == alone


def test_ranks_count_from_one_after_dropping() -> None:
    matches = [IndexMatch(document(number), 1 / (number + 1)) for number in range(5)]
    search = IndexSearch(index=1, question=TEN, k=3)
    reply = take_page(search, matches, {document(0): twin(TEN), document(2): twin(TEN)})
    assert reply.duplicates == (document(0), document(2))
    assert [(hit.document, hit.rank) for hit in reply.hits] == [
        (document(number), rank) for rank, number in enumerate((1, 3, 4), start=1)
    ]
    assert reply.hits[0].score == 1 / 2


def test_a_page_ends_at_the_threshold_and_names_what_it_cut() -> None:
    matches = [IndexMatch(document(number), score) for number, score in enumerate((0.9, 0.8, 0.7, 0.69, 0.1))]
    reply = take_page(IndexSearch(index=1, question=TEN, k=4, threshold=0.7), matches, {document(1): twin(TEN)})
    assert [(hit.document, hit.rank) for hit in reply.hits] == [(document(0), 1), (document(2), 2)]
    assert reply.cut == (Hit(document=document(3), rank=3, score=0.69), Hit(document=document(4), rank=4, score=0.1))


def test_a_page_of_which_nothing_is_cut_says_nothing() -> None:
    matches = [IndexMatch(document(0), 0.7)]
    replies = [take_page(IndexSearch(index=1, question=TEN, k=4, threshold=each), matches, {}) for each in (None, 0.7)]
    assert replies == [Retrieved(hits=(Hit(document=document(0), rank=1, score=0.7),))] * 2


def test_looks_at_the_spare_matches_and_no_deeper() -> None:
    matches = [IndexMatch(document(number), 1.0) for number in range(50)]
    twins = {document(number): twin(TEN) for number in range(SPARE)}
    reply = take_page(IndexSearch(index=1, question=TEN, k=2), matches, twins)
    assert [hit.document for hit in reply.hits] == [document(SPARE), document(SPARE + 1)]
    late = take_page(IndexSearch(index=1, question=TEN, k=2), matches, {document(SPARE + 2): twin(TEN)})
    assert late.duplicates == ()


def test_a_document_that_is_no_longer_known_is_kept() -> None:
    reply = take_page(IndexSearch(index=1, question=TEN, k=1), [IndexMatch(document(1), 1.0)], {})
    assert len(reply.hits) == 1


@pytest.mark.slow
@needs("math")
def test_searches_over_math_leave_out_the_one_problem_that_is_there_word_for_word() -> None:
    found = {
        record.document.hash: ComparedDocument(record.document)
        for record in read_corpus(corpus_lines(DATA / "math" / "train.jsonl"))
    }
    items = list(read_dataset(dataset_lines(DATA / "math" / "test-dev.jsonl")))
    texts = [(number, each.document.whole) for number, each in found.items()]
    matches = Bm25().build([texts]).search([item.question for item in items], 10 + SPARE)
    left_out = {
        rule: {
            (number, document)
            for number, (item, each) in enumerate(zip(items, matches, strict=True))
            for document in take_page(search(item, rule), each, found).duplicates
        }
        for rule in rules()
    }
    assert {rule: len({number for number, _ in pairs}) for rule, pairs in left_out.items()} == {
        "off": 0, "same-text": 1, "same-answer": 1, "same-words": 15,
    }  # fmt: skip
    [(number, document)] = left_out["same-answer"]
    assert has_answer(found[document].document.text, items[number].gold or "")
    assert (number, document) not in left_out["same-words"]


def search(item: DatasetItem, rule: Duplicates) -> IndexSearch:
    gold = item.gold or "" if rule == "same-answer" else ""
    return IndexSearch(index=1, question=item.question, k=10, duplicates=rule, gold=gold)


def rules() -> tuple[Duplicates, ...]:
    return get_args(Duplicates)


@needs("math")
def test_dense_search_finds_the_twin_of_a_problem() -> None:
    records = [
        record.document
        for _, record in zip(range(300), read_corpus(corpus_lines(DATA / "math" / "train.jsonl")), strict=False)
    ]
    backend = Faiss(StaticEmbedder(REPOSITORY / "models" / "static-embeddings"))
    index = backend.build([[(each.hash, make_indexed_text(each.problem, each.text)) for each in records]])
    found = index.search([each.problem for each in records], 1)
    right = sum(matches[0].document == each.hash for matches, each in zip(found, records, strict=True))
    assert right > 0.9 * len(records)


TEXT = "the product of all of the roots of this monic polynomial is its last coefficient"


@pytest.mark.parametrize(
    ("question", "problem", "same"),
    [
        (TEXT, TEXT.upper() + "!", True),
        (TEXT, TEXT + " here", True),
        (TEXT, "what is music", False),
        ("What is $x$?", "what is $x$?", True),
        ("What is 3 + 4?", "What is 3 + 5?", False),
        ("?", "", False),
        ("", "", False),
    ],
)
def test_release_0_1_compared_words_alone(question: str, problem: str, *, same: bool) -> None:
    assert has_same_words(question, problem) is same


# One spelling for a problem, whatever it was written with.

PROBLEM = r"What is the smallest $x$ with $\frac{1}{2} \le x^2$?"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{2}", r"\frac12"),
        (r"\frac{1}{2}", r"\frac 1{2}"),
        (r"\frac{a}{12}", r"\cfrac a{12}"),
        (r"\frac{\pi}{2}", r"\frac\pi2"),
        (r"\frac{x+1}{2}", r"\tfrac{{x+1}}2"),
        (r"\frac{1}{2}", r"{1 \over 2}"),
        (r"\sqrt{2}", r"\sqrt2"),
        (r"\sqrt[3]{8}", r"\sqrt [3] 8"),
        (r"\binom{n}{k}", r"\dbinom nk"),
        (r"\binom{n}{k+1}", r"{n \choose k+1}"),
        ("x^{2}", "x^2"),
        ("a_{1}", "a_1"),
        (r"x^{\frac{1}{2}}", r"x^\frac12"),
        (r"60^{\circ}", r"60^\circ"),
        (r"f^{\prime\prime}(x)", "f''(x)"),
        (r"\overline{x}", r"\overline x"),
        (r"\log_{8} 2", r"\log_82"),
    ],
)
def test_an_argument_of_one_character_needs_no_braces(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"x \leq 3", r"x \leqslant 3"),
        (r"x \geqslant 3", "x >= 3"),
        (r"x \neq 3", r"x \not= 3"),
        (r"1, \ldots, n", r"1, \dots, n"),
        (r"1 + \cdots + n", "1 + ... + n"),
        (r"x \to 0", r"x \rightarrow 0"),
        (r"\lvert x \rvert", "|x|"),
        (r"a \mid b", "a | b"),
        (r"\left( \frac{1}{2} \right)", r"\Bigl( \frac{1}{2} \Bigr)"),
        (r"a\,b\;c\!d\quad e", "a b c d e"),
        (r"5 \text{ cm}", r"5 \mathrm{cm}"),
        (r"\textbf{Find} \emph{all} $x$", "Find all $x$"),
        (r"\operatorname{lcm}(a, b)", r"\text{lcm}(a, b)"),
        (r"\sin x", "sin x"),
        (r"2 \times 3", r"2 \cdot 3"),
        (r"a \times b", "a * b"),
        (r"a \equiv b \pmod{5}", r"a \equiv b (\bmod 5)"),
        (r"\$5 and 20\%", "$5 and 20%"),
        (r"\(x\) and \[y\]", "$x$ and $$y$$"),
        (r"\[x = 1\]", r"\begin{equation*}x = 1\end{equation*}"),
        (r"\begin{align*} x &= 1 \\ y &= 2 \end{align*}", "$x = 1$ $y = 2$"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\left(\begin{array}{c} 1 \\ 2 \\ \end{array}\right)"),
        (r"\triangle ABC", r"\triangle A B C"),
        ("1{,}000 and .5", "1,000 and 0.5"),
    ],
)
def test_synonyms_and_formatting_make_no_other_text(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{2}", "½"),
        (r"2\frac{3}{4}", "2¾"),
        ("x^{12}", "x¹²"),
        ("x^{-1} + a_{n}", "x⁻¹ + aₙ"),
        (r"\sqrt{2} + \sqrt{12} + \sqrt{x+1}", "√2 + √12 + √(x+1)"),
        (r"\sqrt[3]{8}", "∛8"),
        (r"x \le \pi", "x ≤ π"),
        (r"x \ge \infty, x \ne \emptyset", "x ≥ ∞, x ≠ ∅"),
        (r"2 \times 3 \div 4 \cdot 5", "2 × 3 ÷ 4 · 5"),
        (r"\angle ABC = 90^\circ", "∠ABC = 90°"),
        (r"x \in \mathbb{R}", "x ∈ ℝ"),
        (r"1, \dots, n \to \alpha", "1, …, n → α"),
        (r"\lfloor x \rfloor", "⌊x⌋"),
        ("$x + y$", "𝑥 + 𝐲"),
        ("3 + 4 = (7)", "３＋４＝（７）"),
        ("5 - 3", "5 − 3"),
        ("5-3", "5–3"),
        ('the "set" of Tom\'s', "the “set” of Tom’s"),
        ("f'(x)", "f′(x)"),
        ("a < b & c > d", "a &lt; b &amp; c &gt;&nbsp;d"),
        ("a < b", "a &#60; b"),
        ("solution", "\ufeffso\u00adlu\u200btion"),
    ],
)
def test_characters_and_entities_are_what_they_stand_for(one: str, other: str) -> None:
    assert is_same_text(one, other)


@pytest.mark.parametrize(
    "prompt",
    [
        "{}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        "{} Let’s think step by step.",
        "{} Let's think step by step and output the final answer within \\boxed{}.",
        "Problem: {}",
        "**Problem 12.** {}",
        "## Question\n{}\n\n## Answer\n",
        "Q: {}\nA:",
        "Problem:\n{}\n\nSolution:",
        "Solve the following math problem: {}",
        "Answer the question below.\n\n{}",
        "Solve this problem: {}\nShow your work.",
        (
            'Solve the following math problem step by step. The last line of your response should be "Answer: $ANSWER" '
            '(without quotes).\n\n{}\n\nRemember to put your answer on its own line after "Answer:".'
        ),
        (
            "Below is an instruction that describes a task. Write a response that completes the request.\n\n"
            "### Instruction:\n{}\n\n### Response: Let's think step by step."
        ),
        "{}\n请逐步推理，并将最终答案放在\\boxed{}中。",
        "题目：{}请通过逐步推理来解答问题，并把最终答案放置于\\boxed{}中。",
        "请解答下面的数学问题：{}\n答案：",
    ],
)
@pytest.mark.parametrize("problem", [PROBLEM, "小明有3个苹果，又买了5个。他一共有几个苹果？"])
def test_a_prompt_around_a_problem_is_no_part_of_it(prompt: str, problem: str) -> None:
    assert is_same_text(prompt.replace("{}", problem, 1), problem)


@pytest.mark.parametrize(
    "text",
    [
        "Express your answer as a common fraction.",
        "Find the answer to the question that Tom asked.",
        "The frog solves the problem in 3 steps. Which one?",
        "Question the result.",
        "解方程 x = 2。",
    ],
)
def test_what_a_problem_says_itself_stays(text: str) -> None:
    assert list_problem_tokens(f"{text} {PROBLEM}") == list_tokens(f"{text} {PROBLEM}")
    assert list_problem_tokens(f"{PROBLEM} {text}") == list_tokens(f"{PROBLEM} {text}")


def test_a_text_of_instructions_alone_stays() -> None:
    assert " ".join(list_problem_tokens("Problem: Let's think step by step.")) == "problem let s think step by step"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^{n+1}", "x^n+1"),
        ("x^{12}", "x^12"),
        ("x²", "x2"),
        ("x₂", "x2"),
        ("x^{ab}", "x^ab"),
        (r"\frac{1}{23}", r"\frac{12}{3}"),
        (r"\frac{1}{2}3", r"\frac{1}{23}"),
        (r"\frac{1}{x}y", r"\frac{1}{xy}"),
        (r"2\frac{1}{2}", r"\frac{21}{2}"),
        (r"\sqrt{12}", r"\sqrt12"),
        (r"\sqrt{x+1}", r"\sqrt{x}+1"),
        (r"\sqrt[3]{x}", r"\sqrt{x}"),
        ("√12", "√1 2"),
        (r"\overline{AB}", r"\overline{A}B"),
        (r"\binom{n}{k}", r"\frac{n}{k}"),
        ("f'(x)", "f(x)"),
        (r"x \le 3", "x < 3"),
        (r"x \in A", r"x \notin A"),
        (r"\mathbf{a} \times \mathbf{b}", r"\mathbf{a} \cdot \mathbf{b}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
        (r"\{x\}", "x"),
        (r"1 + 2 + \dots + 9", "1 + 2 + 9"),
        ("0.5", "5"),
        (".5", "5"),
        ("1 2", "12"),
        ("3:5", "3 5"),
        ("20%", "20"),
        ("ℝ", "R"),
        (r"\sin x", r"\cos x"),
        ("n!", "n"),
    ],
)
def test_what_may_be_another_problem_stays_another(one: str, other: str) -> None:
    assert not is_same_text(one, other)
    assert not is_same_text(f"Compute ${one}$ now.", f"Compute ${other}$ now.")


PARTS = [
    *("\\frac", "{", "}", "^", "_", "\\sqrt", "\\sqrt[3]", "[", "]", "\\begin{array}", "\\end{cases}", "\\\\", "\\"),
    *("\\text", "x", "12", "ab", "'", "\\prime", "\\pmod", "\\choose", "-", "!", ":", "½", "²", "√", "(", ")", "$"),
    *(" ", "\n", ".", "&", "&lt;", "\u200b", "ｘ", "π", "αβγδ", "中", "。", "Problem:", "\ud800"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=20).map("".join))
def test_every_text_can_be_read(text: str) -> None:
    assert all(list_problem_tokens(text))
    assert list_tokens(text) == list_tokens(f" {text}\n")


@pytest.mark.parametrize(
    "part", ["{", "^{", "\\frac", "\\frac{", "{\\choose", "sqrt(", "&a", "'", "answer**", "请", ". "]
)
def test_a_long_repetition_is_read_in_linear_time(part: str) -> None:
    assert len(list_problem_tokens(f"{part * 100_000} x 7")) >= 1


# Which questions a corpus answers already: the same as looking at every pair.

TEXTS = st.lists(st.sampled_from(["ab", "cd", "ef", "7"]), max_size=14).map(" ".join)


@given(questions=st.lists(TEXTS, max_size=8), problem=TEXTS)
def test_the_twins_are_those_that_a_look_at_every_pair_finds(questions: list[str], problem: str) -> None:
    found = QuestionIndex(questions).twins(problem)
    assert [twin.question for twin in found] == [
        place for place, question in enumerate(questions) if is_near_duplicate(question, problem)
    ]
    assert [twin.exact for twin in found] == [is_same_text(questions[twin.question], problem) for twin in found]


@given(words=st.integers(3, 60), changed=st.integers(0, 60))
def test_the_threshold_belongs_to_it_whatever_the_length(words: int, changed: int) -> None:
    names = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]
    question, problem = " ".join(names[:words]), " ".join(names[: max(words - changed, 0)])
    assert bool(QuestionIndex([question]).twins(problem)) == is_near_duplicate(question, problem)


def test_case_and_outer_blanks_are_the_same_text_and_another_word_is_near() -> None:
    questions = QuestionIndex([TEN, f"{TEN} here", "What is music?"])
    assert questions.twins(f" {TEN.upper()}\r\n") == [
        QuestionDuplicate(0, exact=True),
        QuestionDuplicate(1, exact=False),
    ]
    assert questions.twins("what IS music?") == [QuestionDuplicate(2, exact=True)]
    assert questions.twins("something else altogether") == []


def test_a_question_in_another_spelling_or_in_a_prompt_is_the_same_text() -> None:
    questions = QuestionIndex([r"What is $\dfrac12$ of $\triangle ABC$?"])
    asked = "Problem: What is ½ of △A B C?\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert questions.twins(asked) == [QuestionDuplicate(0, exact=True)]


@pytest.mark.parametrize("problem", ["", "  \n"])
def test_a_passage_without_a_problem_is_nobodys_twin(problem: str) -> None:
    assert QuestionIndex(["", TEN]).twins(problem) == []


def test_questions_that_are_asked_twice_are_both_found() -> None:
    assert [twin.question for twin in QuestionIndex([TEN, "x", TEN]).twins(TEN)] == [0, 2]


@needs("math")
def test_one_of_a_thousand_questions_of_math_stands_in_its_training_part() -> None:
    documents = [record.document for record in read_corpus(corpus_lines(DATA / "math" / "train.jsonl"))]
    items = list(read_dataset(dataset_lines(DATA / "math" / "test-dev.jsonl")))
    questions = QuestionIndex([item.question for item in items])
    pairs = [(twin, each.text) for each in documents for twin in questions.twins(each.problem)]
    assert (len(pairs), len({twin.question for twin, _ in pairs})) == (9, 3)
    same = [twin.exact for twin, text in pairs if has_answer(text, items[twin.question].gold or "")]
    assert same == [True]
    assert sum(twin.exact for twin, _ in pairs) == 1


def test_a_person_reads_how_many_and_sees_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_leaks(make_example("Leaks", passages=4))
    said = capsys.readouterr().out
    assert "math-500 in math: 3 of 500 questions (0.6 %) also occur among 7500 documents" in said
    assert "1 verbatim, 2 near-duplicates; 4 pairs, 2 with the same answer" in said
    assert "4 documents are passages, without a question" in said
    assert said.splitlines()[-1].split()[:3] == ["17", "same", "train/algebra/12"]


# Documents that differ by case, blanks or forms of characters alone.

FIRST = Document(problem="What is 2+2?", text="It is  4.")
AGAIN = Document(problem="what is 2+2?", text="It is\n4. ")
WIDE = Document(problem="What is ２+2?", text="It is 4.")
OTHER = Document(problem="What is 2+2?", text="It is 4!")
POWER = Document(problem="What is 2²?", text="It is 4.")
PLAIN = Document(problem="What is 22?", text="It is 4.")
LIBRARY = {document.hash: document for document in (FIRST, AGAIN, WIDE, OTHER, POWER, PLAIN)}


def test_the_first_of_equal_documents_stays() -> None:
    assert len(LIBRARY) == 6
    assert drop_same_texts([AGAIN.hash, OTHER.hash, FIRST.hash, WIDE.hash], LIBRARY) == (AGAIN.hash, OTHER.hash)


def test_a_square_is_not_a_digit() -> None:
    assert drop_same_texts([POWER.hash, PLAIN.hash], LIBRARY) == (POWER.hash, PLAIN.hash)


def test_solutions_that_begin_alike_are_two() -> None:
    long = "Let x be a number. " * 20
    assert hash_content(Document(text=long + "1")) != hash_content(Document(text=long + "2"))


def test_problem_and_text_do_not_run_together() -> None:
    assert hash_content(Document(problem="ab", text="c")) != hash_content(Document(problem="a", text="bc"))


def test_content_is_the_same_in_every_process() -> None:
    assert hash_content(Document(text="A")) == hashlib.sha256(b"\0a").digest()
