"""write-questions: lets the judge model write a question from passages of a corpus, and checks it.

`mathrag dataset generate` makes its jobs, one sample for each candidate, and makes the dataset of the questions that
are kept (`shared/runtime/generating.py`). A question is checked first without a model, then by the judge model: it must
find the answer in the passages, must understand the question without them, and must need both if there are two.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mathrag.reasoning import remove_reasoning
from shared.calls import Call, Decoding, Judge, Retrieve, Write
from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.grading import compute_f1
from shared.rag.prompts import localise
from shared.rag.text import contains_words, extract_terms, normalise_words
from shared.replies import INFRASTRUCTURE, Failure, Generated, Rated, Reply, Retrieved, require
from shared.samples import Decision, Extraction, Library, Outcome, Passages, Sample, Steps, Trace

WRITE_QUESTIONS = "write-questions"
KEPT = "kept"
"""Action of the decision of a question that passed all checks; of every other one it is a reason of `REASONS`."""
REASONS = {
    "nothing_to_ask": "the model found nothing to ask",
    "unreadable": "the reply lacks the question, the answer or a quotation",
    "not_quoted": "a quotation does not occur in its passage",
    "answer_not_quoted": "no quotation contains the answer and more than it",
    "answer_in_question": "the question contains the answer",
    "names_passage": 'the question speaks of "the passage" or "this text"',
    "unanswered": "the model does not find the answer in the passages",
    "not_labelled": "the model does not say whether the question can be understood without the passages",
    "not_standalone": "the question cannot be understood without the passages",
    "one_hop": "one of the two passages is enough",
}
"""Why a question is left out, in the order of the checks."""
DRY_RUN = Passages(documents=("0" * 64, "1" * 64))
"""Input of a dry run: two passages, which cost most."""
SEARCHED = 10
"""Documents that a search for the question returns, to see which others have the answer."""
SAME_ANSWER = 0.5
"""Token F1 from which a reply gives the answer, if both have the same numbers. A reply that contains it does as
well."""
_WRITING = Decoding(temperature=0.0, max_tokens=400)
_ANSWERING = Decoding(temperature=0.0, max_tokens=60)
_LABELLING = Decoding(temperature=0.0, max_tokens=10)
# Possessive, so that a long row of blanks or marks is read once.
_FIELD = re.compile(
    r"^[ \t>#*_-]*+(?:\d{1,2}[.)][ \t*_]*+)?"
    r"(?:(?P<question>question|问题)|(?P<answer>answer|答案)|(?P<quotation>quotation|quote|引文))"
    r"(?:[ \t]*+\[?\d\]?)?[ \t*_]*+[:：][*_]*+",
    re.IGNORECASE | re.MULTILINE,
)
_NOTHING = re.compile(r"\W*(?:none\b|无\W*$)", re.IGNORECASE)
_NUMBER_OF_PASSAGE = re.compile(r"\[\d\]\s*")
_NAMES_PASSAGE = re.compile(
    r"\b(?:this|these|both|the two|the (?:given|above|following|provided)) (?:passage|excerpt|paragraph)s?\b"
    r"|\bthe passages?\b|\bpassages? \[?\d"
    r"|\bthis (?:text|article|document|section|chapter|table|figure|author|study|paper)\b"
    r"|\b(?:in|from|by|according to) the (?:text|excerpt|paragraph|context|document|article|author)s?\b"
    r"|\bthe (?:text|excerpt|paragraph|context|document|article|author) (?:say|state|mention|describe|give)s?\b"
    r"|(?<![日中])本文(?![化学字明])|该文|该资料|资料中|根据资料|资料\s*\[?\d|文章中|上文|这篇|这段|本段|该段",
    re.IGNORECASE,
)
_MARKS = (("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("「", "」"))
"""Pairs of marks that models put around a text."""


@pipeline(WRITE_QUESTIONS, reads=(), offered=False)
def write_questions(sample: Sample, _params: Params, library: Library) -> Steps:
    """Write one question and check it; the answer is the question, unless it is left out."""
    given = sample.given if isinstance(sample.given, Passages) else DRY_RUN
    texts = [library[hash_].whole for hash_ in given.documents]
    written: Generated = require((yield _make_writing_call(given, texts[0])))
    candidate = read_candidate(remove_reasoning(written.text), texts)
    if isinstance(candidate, str):
        return _make_outcome(given, candidate)
    calls = _make_checking_calls(candidate, given.documents)
    replies: list[Reply] = yield list(calls.values())
    found = dict(zip(calls, map(_require_reply, replies), strict=True))
    label, retrieved = found["standalone"], found["search"]
    alone = [hash_ for hash_ in given.documents if hash_ in found and _gives_answer(found[hash_], candidate.answer)]
    if not _gives_answer(found["all"], candidate.answer):
        reason = "unanswered"
    elif not isinstance(label, Rated):
        reason = "not_labelled"
    elif label.rating == 1:
        reason = "not_standalone"
    else:
        reason = "one_hop" if alone else KEPT
    hits = retrieved.hits if isinstance(retrieved, Retrieved) else ()
    others = [hit.document for hit in hits if hit.document not in given.documents]
    also_in = [hash_ for hash_ in others if _contains_answer(library[hash_].whole, candidate.answer)]
    detail = {
        "question": candidate.question, "answer": candidate.answer, "quotations": [*candidate.quotations],
        "guessable": _gives_answer(found["guess"], candidate.answer), "also_in": also_in, "overlap": candidate.overlap,
    }  # fmt: skip
    return _make_outcome(given, reason, detail)


class Candidate(NamedTuple):
    """A question as the model wrote it."""

    question: str
    answer: str
    quotations: tuple[str, ...]
    """One quotation of each passage, in their order, copied literally."""

    @property
    def overlap(self) -> float:
        """Return the share of the question's terms that the quotations have, from 0 to 1."""
        asked = set(extract_terms(self.question))
        return len(asked & set(extract_terms(" ".join(self.quotations)))) / len(asked) if asked else 0.0


def read_candidate(reply: str, passages: Sequence[str]) -> Candidate | str:
    """Return the question of a reply if it passes the checks that need no model, else the reason of `REASONS`."""
    fields = _read_fields(reply)
    if not any(fields.values()) and _NOTHING.match(reply):
        return "nothing_to_ask"
    if len(fields["question"]) != 1 or len(fields["answer"]) != 1 or len(fields["quotation"]) != len(passages):
        return "unreadable"
    question, answer = fields["question"][0], fields["answer"][0]
    quotations = _find_quotations(fields["quotation"], passages)
    if quotations is None:
        return "not_quoted"
    length = len(normalise_words(answer))
    if not any(_contains_answer(each, answer) and len(normalise_words(each)) > length for each in quotations):
        return "answer_not_quoted"
    if _contains_answer(question, answer):
        return "answer_in_question"
    if _NAMES_PASSAGE.search(question):
        return "names_passage"
    return Candidate(question, answer, quotations)


def _read_fields(reply: str) -> dict[str, list[str]]:
    """Return the texts behind `Question:`, `Answer:` and `Quotation:`; each continues to the next field."""
    fields: dict[str, list[str]] = {"question": [], "answer": [], "quotation": []}
    reply = reply.replace("\0", "")
    found = [*_FIELD.finditer(reply)]
    ends = [*(match.start() for match in found[1:]), len(reply)]
    for match, end in zip(found, ends, strict=False):
        if text := _unwrap(" ".join(reply[match.end() : end].split())):
            fields[str(match.lastgroup)].append(text)
    return fields


def _unwrap(text: str) -> str:
    """Return a text without the number of its passage, and without the marks around it as a whole."""
    number = _NUMBER_OF_PASSAGE.match(text)
    text = text[number.end() :] if number else text
    if text.count("**") == 1:  # the other one is before the label
        text = text.replace("**", "")
    for opening, closing in _MARKS:
        inside = text[len(opening) : -len(closing)]
        if text == f"{opening}{inside}{closing}" and opening not in inside:
            text = inside.strip()
    return text.strip()


def _find_quotations(quotations: Sequence[str], passages: Sequence[str]) -> tuple[str, ...] | None:
    """Return the quotation of each passage literally; None if one is missing. Blanks and line breaks may
    differ, and two quotations may be in either order.
    """
    for order in (quotations, quotations[::-1]):
        found = [_find_quotation(quotation, passage) for quotation, passage in zip(order, passages, strict=True)]
        if all(found):
            return tuple(map(str, found))
    return None


def _find_quotation(quotation: str, passage: str) -> str | None:
    match = re.search(r"\s+".join(map(re.escape, quotation.split())), passage)
    return match[0] if match else None


def _make_writing_call(given: Passages, text: str) -> Write:
    style = {"style": f"\n{given.style}\n"} if given.style else {}
    single = len(given.documents) == 1
    template = localise("write-question", text) if single else localise("write-two-hop-question", text)
    return Write(template=template, decoding=_WRITING, slots=style, documents=given.documents)


def _make_checking_calls(candidate: Candidate, documents: tuple[str, ...]) -> dict[str, Call]:
    """Return the calls by name; those that answer from one passage of two by the passage's hash."""
    question = candidate.question
    template = localise("answer-from-passages", question)
    sources = {"all": documents} | ({each: (each,) for each in documents} if len(documents) > 1 else {})
    slots = {"question": question}
    return {
        **{
            name: Write(template=template, decoding=_ANSWERING, slots=slots, documents=source)
            for name, source in sources.items()
        },
        "guess": Write(template=localise("short-answer", question), decoding=_ANSWERING, slots=slots),
        "standalone": Judge(rubric=localise("standalone", question), question=question, decoding=_LABELLING),
        "search": Retrieve(question=question, index="sparse", k=SEARCHED),
    }


def _require_reply(reply: Reply) -> Reply:
    """Return a reply, also one that the model failed to give; an outage ends the sample.

    Raises:
        CallFailed: the failure does not depend on the call.
    """
    return require(reply) if isinstance(reply, Failure) and reply.kind in INFRASTRUCTURE else reply


def _gives_answer(reply: Reply, answer: str) -> bool:
    """Tell whether a short reply gives the answer."""
    if not isinstance(reply, Generated):
        return False
    text = remove_reasoning(reply.text)
    said, expected = normalise_words(text), normalise_words(answer)
    return _contains_answer(text, answer) or (
        _list_numbers(said) == _list_numbers(expected) and compute_f1(said, expected) >= SAME_ANSWER
    )


def _list_numbers(words: Sequence[str]) -> list[str]:
    return sorted(word for word in words if any(character.isdigit() for character in word))


def _contains_answer(text: str, answer: str) -> bool:
    """Return whether the words of the answer occur in the text one after the other."""
    return contains_words(normalise_words(answer), normalise_words(text))


def _make_outcome(given: Passages, reason: str, detail: Mapping[str, Any] | None = None) -> Outcome:
    detail = dict(detail or {})
    trace = Trace(decisions=(Decision(stage="question", action=reason, detail=detail),))
    if reason == KEPT:
        return Outcome(answer=detail["question"], extraction=Extraction.OK, context=given.documents, trace=trace)
    return Outcome(
        answer=None, extraction=Extraction.REFUSED, refusal=REASONS[reason], context=given.documents, trace=trace
    )
