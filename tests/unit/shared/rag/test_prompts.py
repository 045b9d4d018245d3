"""Templates: the exact prompts, the slots, the hash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.prompts import Template, TemplateError, list_template_ids, render, template
from shared.replies import Document

APPLES = Document(problem="How many apples?", text=r"There are $\frac{4}{2}$, so \boxed{2}.")
PASSAGE = Document(text="A plain passage.")
NASTY = r"{{question}} {context} \1 \g<0> %s $x {0} }} {{ {{document}}"


def test_cot_with_documents_reads_exactly() -> None:
    prompt = render(template("cot"), {"context": [APPLES, APPLES], "question": "How many pears?"})
    assert prompt == (
        "Solve the problem step by step. Put the final answer in \\boxed{}.\n\n"
        "Problem: How many apples?\nSolution: There are $\\frac{4}{2}$, so \\boxed{2}.\n\n"
        "Problem: How many apples?\nSolution: There are $\\frac{4}{2}$, so \\boxed{2}.\n\n"
        "Question: How many pears?"
    )


@pytest.mark.parametrize("values", [{}, {"context": []}, {"context": ()}])
def test_cot_without_documents_reads_exactly(values: dict[str, list[Document]]) -> None:
    prompt = render(template("cot"), {**values, "question": "How many pears?"})
    assert prompt == ("Solve the problem step by step. Put the final answer in \\boxed{}.\n\nQuestion: How many pears?")


def test_a_passage_without_a_problem_is_its_text_alone() -> None:
    prompt = render(template("cot"), {"context": [PASSAGE], "question": "Q"})
    assert prompt.endswith("\n\nA plain passage.\n\nQuestion: Q")
    assert render(template("reasoning-quality"), {"document": PASSAGE}).endswith("\n\nA plain passage.\nRating:")


def test_reasoning_quality_reads_exactly() -> None:
    assert render(template("reasoning-quality"), {"document": APPLES}) == (
        "Rate the reasoning of the last document from 1 (an answer without reasoning) to 5 "
        "(complete and correct steps). Answer with [[1]] to [[5]] only.\n\n"
        "Problem: What is 2 plus 3?\nSolution: The answer is 5.\nRating: [[1]]\n\n"
        "Problem: What is 2 plus 3 times 4?\nSolution: Step 1. Since multiplication comes first, 3*4=12. "
        "Step 2. Therefore 2+12=14. The answer is \\boxed{14}.\nRating: [[5]]\n\n"
        "Problem: How many apples?\nSolution: There are $\\frac{4}{2}$, so \\boxed{2}.\nRating:"
    )


def test_anchors_can_be_replaced() -> None:
    prompt = render(template("reasoning-quality"), {"document": APPLES, "negative": "Just 5."})
    assert "only.\n\nJust 5.\nRating: [[1]]\n\nProblem: What is 2 plus 3 times 4?" in prompt


def test_the_rubric_has_no_question_slot() -> None:
    assert "question" not in template("reasoning-quality").slots
    with pytest.raises(TemplateError, match="no slot 'question'; its slots are: document, negative, positive"):
        render(template("reasoning-quality"), {"document": APPLES, "question": "Q"})


def test_an_undeclared_slot_is_refused_by_name() -> None:
    with pytest.raises(TemplateError, match="template 'cot' has no slot 'questoin'"):
        render(template("cot"), {"question": "Q", "questoin": "Q"})


def test_a_missing_required_slot_is_refused_by_name() -> None:
    with pytest.raises(TemplateError, match="template 'cot' needs a value for its slot 'question'"):
        render(template("cot"), {"context": [APPLES]})


@given(st.one_of(st.just(NASTY), st.text()))
def test_values_are_never_expanded_again(text: str) -> None:
    prompt = render(template("cot"), {"context": [Document(problem=NASTY, text=NASTY)], "question": text})
    head = "Solve the problem step by step. Put the final answer in \\boxed{}.\n\n"
    assert prompt == f"{head}Problem: {NASTY}\nSolution: {NASTY}\n\nQuestion: {text}"


def test_an_unknown_template_lists_the_known_ones() -> None:
    assert {"cot", "cot-zh", "reasoning-quality", "relevance", "rewrite"} <= set(list_template_ids())
    with pytest.raises(TemplateError, match=f"^no template 'cott'; there are: {', '.join(list_template_ids())}$"):
        template("cott")


@pytest.mark.parametrize("path", ["../templates/cot", "templates/cot", "", "cot.toml"])
def test_an_id_is_not_a_path(path: str) -> None:
    with pytest.raises(TemplateError):
        template(path)


def test_every_packaged_template_loads_under_its_own_id() -> None:
    assert {template(name).id for name in list_template_ids()} == set(list_template_ids())


def test_the_hash_changes_with_everything_that_it_covers() -> None:
    base = Template(id="t", version=1, text="{{a}}", optional=("a",), defaults={"a": "x"})
    others = [
        Template(id="u", version=1, text="{{a}}", optional=("a",), defaults={"a": "x"}),
        Template(id="t", version=2, text="{{a}}", optional=("a",), defaults={"a": "x"}),
        Template(id="t", version=1, text="{{a}} ", optional=("a",), defaults={"a": "x"}),
        Template(id="t", version=1, text="{{a}}", optional=("a",), defaults={"a": "y"}),
    ]
    assert len({base.hash, *(other.hash for other in others)}) == 5
    assert base.hash == Template(id="t", version=1, text="{{a}}", optional=("a",), defaults={"a": "x"}).hash


def test_a_template_whose_text_uses_other_slots_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"declares \['a'\] but its text uses \['b'\]"):
        Template(id="t", version=1, text="{{b}}", required=("a",))
    with pytest.raises(TemplateError, match="declares"):
        Template(id="t", version=1, text="no slot", optional=("a",))


def test_a_default_for_a_required_slot_is_refused() -> None:
    with pytest.raises(TemplateError, match="defaults for slots that are not optional"):
        Template(id="t", version=1, text="{{a}}", required=("a",), defaults={"a": "x"})
