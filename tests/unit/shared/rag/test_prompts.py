import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.calls import Call, Generate, Request
from shared.params import Params
from shared.pipelines import registry
from shared.rag.prompts import (
    PARSERS,
    Critique,
    Template,
    TemplateError,
    detect_language,
    list_labels,
    list_template_ids,
    localise,
    make_template_reference,
    parse_critique,
    parse_rating,
    parse_relevance,
    render,
    template,
)
from shared.rag.text import change_prose, find_mathematics, list_prose
from shared.replies import Document, Failure, FailureKind, Rated, Relevance, Token
from shared.samples import Item, Sample, Strategy
from tests.unit.shared.pipelines.test_pipelines import LIBRARY, decision, drive

# Templates: the exact prompts, the slots, the hash.


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
    with pytest.raises(
        TemplateError, match=f"^no template 'cott'; the templates are {', '.join(list_template_ids())}$"
    ):
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


# The language of a question, what of it is mathematics, and the prompts that there are in both languages.

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
    assert localise("cot", CHINESE) == "cot-zh"
    assert localise("cot", "What is 2 plus 3?") == "cot"
    assert localise("no-such", CHINESE) == "no-such"


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


# Reading the judge's reply.


@pytest.mark.parametrize("rating", range(1, 6))
def test_a_rating_from_1_to_5_is_read(rating: int) -> None:
    rated = parse_rating(f" [[{rating}]]\n", truncated=False)
    assert rated == Rated(rating=rating, text=f" [[{rating}]]\n")
    assert rated.quality == (rating - 1) / 4


def test_a_rating_is_found_inside_other_text() -> None:
    rated = parse_rating("Sure! The rating is [[4]], because", truncated=True)
    assert isinstance(rated, Rated)
    assert rated.rating == 4


def test_the_same_rating_several_times_is_one_rating() -> None:
    rated = parse_rating("[[3]] [[3]] [[3]]", truncated=False)
    assert isinstance(rated, Rated)
    assert rated.rating == 3


@pytest.mark.parametrize(
    "text",
    ["[[0]]", "[[6]]", "[[9]]", "[[12]]", "[[05]]", "[[1]] [[2]]", "[[4]] or [[6]]", "[[4]] [[12]]", "[[٣]]", "[[-1]]"],
)
def test_anything_but_one_number_from_1_to_5_is_unparsed(text: str) -> None:
    reply = parse_rating(text, truncated=False)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED
    assert repr(text)[1:-1] in reply.detail


@pytest.mark.parametrize("text", ["", "5", "[5]", "[[five]]", "[[1, 2]]", "[[4", "4]]", "Rating: 4/5", "[[]]"])
def test_a_reply_without_a_rating_says_whether_it_was_cut_off(text: str) -> None:
    cut, whole = parse_rating(text, truncated=True), parse_rating(text, truncated=False)
    assert isinstance(cut, Failure)
    assert isinstance(whole, Failure)
    assert (cut.kind, whole.kind) == (FailureKind.TRUNCATED, FailureKind.UNPARSED)


@pytest.mark.parametrize(
    "text",
    [
        "[[ 4 ]]", "[[４]]", "[[4.0]]", "［［４］］", "[[\n4\n]]", "**[[4]]**", "[[4]]/5", "[[4]] out of 5", "[[4/5]]",
        "[[4 out of 5]]", "[[4分]]", "[[4]] [[4.0]]", "<think>[[2]] or [[3]]?</think>[[4]]",
        "<think>At first [[1]].\n</think>\n\nRating: [[4]]", "Perhaps [[2]].</think>[[4]]",
    ],
)  # fmt: skip
def test_brackets_hold_a_rating_in_whatever_characters_and_spacing(text: str) -> None:
    assert parse_rating(text, truncated=False) == Rated(rating=4, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "[[4/10]]", "[[4]]/10", "[[4]] out of 10", "[[8 out of 10]]", "[[4%]]", "[[80%]]", "[[4]] %", "[[3-4]]",
        "[[3]]-[[4]]", "[[3]] to [[4]]", "[[3 to 4]]", "[[3–4]]", "[[4.5]]", "[[4,5]]", "[[4.5]] [[4]]", "[[＋6]]",
        "[[3]]～4", "[[4]] on a scale of 1 to 10", "[[4½]]",
    ],
)  # fmt: skip
def test_another_scale_a_range_and_a_fraction_are_no_rating(text: str) -> None:
    reply = parse_rating(text, truncated=False)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED


def test_a_thought_that_never_ended_holds_no_rating() -> None:
    for truncated, kind in ((True, FailureKind.TRUNCATED), (False, FailureKind.UNPARSED)):
        reply = parse_rating("<think>Perhaps [[4]], as the steps", truncated=truncated)
        assert isinstance(reply, Failure)
        assert reply.kind is kind


@pytest.mark.parametrize("text", ["[[6]] and then", "[[1]] [[2]] and"])
def test_truncation_does_not_excuse_a_bad_rating(text: str) -> None:
    reply = parse_rating(text, truncated=True)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED


def test_the_detail_is_shortened() -> None:
    reply = parse_rating("blah " * 1000, truncated=False)
    assert isinstance(reply, Failure)
    assert len(reply.detail) < 200
    assert "blah" in reply.detail
    assert "…" in reply.detail


@given(
    st.lists(st.sampled_from(["[[1]]", "[[5]]", "[[0]]", "[[7]]", "[[", "]]", "3", " ", "x"]), max_size=8),
    st.booleans(),
)
def test_a_rating_is_always_in_range_or_a_failure(parts: list[str], truncated: bool) -> None:
    text = "".join(parts)
    reply = parse_rating(text, truncated=truncated)
    if isinstance(reply, Rated):
        assert f"[[{reply.rating}]]" in text
        assert reply.rating in {1, 5, 3}
    else:
        assert reply.kind in {FailureKind.UNPARSED, FailureKind.TRUNCATED}


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ('{"relevance_score": 0.85, "reasoning": "It explains the idea."}', 0.85, "It explains the idea."),
        ('```json\n{\n  "relevance_score": 1,\n  "reasoning": "Yes"\n}\n```', 1.0, "Yes"),
        ('Sure! {"reasoning": "No use", "relevance_score": 0} Anything else?', 0.0, "No use"),
        ('{"relevance_score": "0.5", "reasoning": ""}', 0.5, ""),
        ("{'relevance_score': .25}", 0.25, ""),
        ('{"relevance_score": 0.7, "reasoning": "by \\frac{1}{2} \\sqrt{2}"}', 0.7, "by \\frac{1}{2} \\sqrt{2}"),
        ('{"relevance_score": 0.7, "reasoning": "says \\"relevance_score\\": 0.1, too"}', 0.7,
         'says "relevance_score": 0.1, too'),
        ('{"relevance_score": 0.7, "reasoning": "it was cut', 0.7, "it was cut"),
        ('{"relevance_score": 0.7}\n{"relevance_score": 0.70}', 0.7, ""),
        ('{"relevance_score": 8e-1, "reasoning": "\\u76f8\\u5173"}', 0.8, "相关"),
        ('｛"relevance_score"：０．８｝', 0.8, ""),
        ('{"relevance_score"：0.8, "reasoning"："x² 相关"}', 0.8, "x² 相关"),
        ('<think>"relevance_score": 0.1, too low</think>{"relevance_score": 0.8, "reasoning": "a"}', 0.8, "a"),
    ],
)  # fmt: skip
def test_a_score_and_its_reason_are_read_from_json(text: str, score: float, reason: str) -> None:
    assert parse_critique(text, truncated=False) == Critique(score, reason)


@pytest.mark.parametrize(
    "text",
    [
        "", "It is relevant.", "[[4]]", "0.8", '{"score": 0.8}', '{"relevance_score": 85}', '{"relevance_score": -0.1}',
        '{"relevance_score": "high"}', '{"relevance_score": null}', '{"relevance_score": NaN}',
        '{"relevance_score": 8/10}', '{"relevance_score": "0.8/1"}', '{"relevance_score": 0.6-0.8}',
        '{"relevance_score": 0.1}{"relevance_score": 0.9}', '<think>{"relevance_score": 0.8}',
        '{"relevance_score": true}', '{"relevance_score": 85%}',
    ],
)  # fmt: skip
def test_a_reply_without_one_score_is_no_score(text: str) -> None:
    found = parse_critique(text, truncated=False)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNPARSED


@pytest.mark.parametrize("text", ['{"relevance_score": 0.', '{"relevance_score": 0', '{"reasoning": "a long'])
def test_a_score_that_the_token_limit_cut_is_none(text: str) -> None:
    found = parse_critique(text, truncated=True)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TRUNCATED


@given(st.text(), st.booleans())
def test_no_text_breaks_the_reader_of_critiques(text: str, truncated: bool) -> None:
    assert isinstance(parse_critique(text, truncated=truncated), Critique | Failure)


# Relevance, read by the probabilities of yes and no or of the ratings.


def spoken(*places: dict[str, float]) -> tuple[Token, ...]:
    """Tokens, the first of each place being the one that was generated, with the probabilities of the alternatives."""
    tops = [{text: math.log(share) for text, share in place.items()} for place in places]
    return tuple(Token(text=next(iter(top)), logprob=next(iter(top.values())), top=top) for top in tops)


def asked(text: str, tokens: tuple[Token, ...] = (), template_id: str = "relevance-yes-no") -> Relevance | Failure:
    return parse_relevance(text, tokens, template_id, truncated=False)


def relevance(found: Relevance | Failure) -> float:
    assert isinstance(found, Relevance)
    return found.probability


def test_relevance_is_the_share_of_yes_among_yes_and_no() -> None:
    found = asked("Yes", spoken({"Yes": 0.5, " yes": 0.1, "No": 0.15, "Maybe": 0.2}))
    assert relevance(found) == pytest.approx(0.6 / 0.75)
    assert isinstance(found, Relevance)
    assert found.labels == pytest.approx({"yes": 0.6, "no": 0.15})


def test_a_reply_that_does_not_begin_with_yes_or_no_is_read_by_its_first_tokens_alternatives() -> None:
    assert relevance(asked("The document", spoken({"The": 0.4, "No": 0.3, "Yes": 0.1}))) == pytest.approx(0.25)


def test_yes_behind_marks_counts_at_its_own_place() -> None:
    assert relevance(asked("**Yes**", spoken({"**": 0.9, "No": 0.1}, {"Yes": 0.8, "No": 0.2}))) == pytest.approx(0.8)


def test_what_is_thought_aloud_does_not_count() -> None:
    thinking = spoken({"<think>": 1.0}, {"no": 1.0}, {"</think>": 1.0}, {"\n\n": 1.0}, {"yes": 0.9, "no": 0.1})
    assert relevance(asked("<think>no</think>\n\nyes", thinking)) == pytest.approx(0.9)


@pytest.mark.parametrize(("text", "expected"), [("Yes, it does", 1.0), (" no.", 0.0), ("**NO**", 0.0)])
def test_without_log_probabilities_the_word_decides(text: str, expected: float) -> None:
    assert asked(text) == Relevance(probability=expected, text=text)


@pytest.mark.parametrize("text", ["It helps", "not at all", "yesterday", "nothing", ""])
def test_a_reply_without_yes_or_no_has_no_relevance(text: str) -> None:
    found = asked(text)
    assert isinstance(found, Failure)
    assert (found.kind, found.detail) == (FailureKind.UNPARSED, f"neither yes nor no in {text!r}")
    tokens = spoken({"It": 0.9, "nothing": 0.1})
    assert isinstance(asked("It helps", tokens), Failure)


def test_a_word_that_is_no_single_token_counts_by_the_text() -> None:
    assert asked("Yes", spoken({"Y": 1.0}, {"es": 1.0})) == Relevance(probability=1.0, text="Yes")
    impossible = (Token(text="no", logprob=-9999.0, top={"no": -9999.0}),)
    assert asked("no", impossible) == Relevance(probability=0.0, text="no")


def test_a_rating_of_relevance_is_the_mean_by_probability() -> None:
    tokens = spoken({"[[": 1.0}, {"4": 0.6, "5": 0.2, "2": 0.2}, {"]]": 1.0})
    found = asked("[[4]]", tokens, "relevance")
    assert relevance(found) == pytest.approx((0.6 * 4 + 0.2 * 5 + 0.2 * 2 - 1) / 4)


def test_a_rating_of_relevance_without_log_probabilities_is_the_rating() -> None:
    assert relevance(asked("[[4]]", template_id="relevance-zh")) == 0.75
    assert isinstance(asked("perhaps", template_id="relevance"), Failure)


@pytest.mark.parametrize("text", ["4 out of 10", "[[4]] or [[5]]", "[[6]]"])
def test_what_is_no_single_rating_from_one_to_five_has_no_relevance(text: str) -> None:
    assert isinstance(asked(text, spoken({"4": 0.9, "5": 0.1}), "relevance"), Failure)


@given(
    st.dictionaries(st.sampled_from(["yes", " no", "Yes", "NO", "x", "1", "[[5", "3"]), st.floats(1e-6, 1), min_size=1)
)
def test_relevance_is_always_a_probability(place: dict[str, float]) -> None:
    for template_id in ("relevance-yes-no", "relevance"):
        found = asked("[[3]]", spoken(place), template_id)
        assert isinstance(found, Failure) or 0 <= found.probability <= 1


@pytest.mark.parametrize(
    ("template", "logprobs", "labels"),
    [
        ("support", 0, ("[[1]]", "[[2]]", "[[3]]")),
        ("addresses-zh", 0, ("[[1]]", "[[2]]", "[[3]]", "[[4]]")),
        ("support", 5, ()),
        ("relevance", 0, ()),
        ("cot", 0, ()),
    ],
)
def test_labels_are_those_of_a_metrics_prompt_unless_probabilities_are_read(
    template: str, logprobs: int, labels: tuple[str, ...]
) -> None:
    request = Request(role="judge", model="m", template=make_template_reference(template), logprobs=logprobs)
    assert list_labels(request) == labels
    for number, label in enumerate(labels, 1):
        assert PARSERS[template](label, truncated=False) == Rated(rating=number, text=label)
