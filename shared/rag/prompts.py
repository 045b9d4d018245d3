"""Prompt templates: find them by language, render them, and parse what models reply."""

import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from typing import Annotated, Literal, NamedTuple

import msgspec

from mathrag.reasoning import remove_reasoning
from shared import canonical
from shared.calls import Decoding, DocumentRef, Judge, Message, Prompt, Request
from shared.params import GradingParams, RelevanceSource
from shared.rag.text import list_prose
from shared.replies import Document, Failure, FailureKind, Rated, Relevance, Token
from shared.samples import Item

# Prompt templates: packaged, versioned, and hashed into every call that uses them.
#
# A slot is written {{name}} in a template's text, which is scanned once: values are inserted unchanged, so that braces
# and backslashes in mathematics, or a question that says {{context}}, mean nothing special.

Value = str | Document | Sequence[Document]
"""What fills a slot: a text, a document, or documents in prompt order."""

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


class TemplateError(ValueError):
    """A template, or a use of one, is wrong: the message names the template, the slot and the fix."""


LONGEST_TEXT = 16_384
"""Upper bound of a stored prompt's text, of its system prompt, and of each text of its examples, in characters."""
ExampleText = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A worked example (few-shot): a question as it appears in the prompt, and the model's answer."""

    question: ExampleText
    """Question of the example."""
    answer: ExampleText
    """Answer that the model is shown."""
    context: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] = ""
    """Text that replaces `{{context}}` in this example."""


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt with named slots. An optional slot that is not given takes its default, or nothing at all."""

    id: str
    version: int
    """Raised by hand when documents are rendered differently: the text alone would not show it."""
    text: str
    """The last message, from the user; the only one unless there are a system prompt or examples."""
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    defaults: dict[str, str] = {}
    system: str = ""
    """The system prompt, word for word."""
    examples: tuple[Example, ...] = ()
    """Each becomes a message of the user, in the form of `text`, and the reply of the assistant."""
    numbered: bool = False
    """Whether the documents of a list are numbered, [1] and so on, so that a reply can cite them."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Return all slots by name, the required ones first."""
        return self.required + self.optional

    @property
    def hash(self) -> str:
        """Return the SHA-256 in hex over id, version, text and defaults, and over system prompt, examples and numbering
        if it has any, in canonical form."""
        around = [self.system, self.examples] if self.system or self.examples else []
        numbered = ["numbered"] if self.numbered else []
        return canonical.digest([self.id, self.version, self.text, self.defaults, *around, *numbered]).hex()

    def __post_init__(self) -> None:
        """Raise TemplateError unless the text uses exactly the declared slots."""
        used = set(_SLOT.findall(self.text))
        if used != set(self.slots):
            raise TemplateError(f"template {self.id!r} declares {sorted(self.slots)} but its text uses {sorted(used)}")
        if not self.defaults.keys() <= set(self.optional):
            raise TemplateError(f"template {self.id!r} has defaults for slots that are not optional")


_adopted: dict[str, Template] = {}
"""Templates of the operator's folder."""


def adopt(found: Template) -> None:
    """Add a template of the operator's folder; its id must differ from those of the package."""
    _adopted[found.id] = found
    template.cache_clear()
    make_template_reference.cache_clear()


@cache
def template(template_id: str) -> Template:
    """Return the template with this id.

    Raises:
        TemplateError: for an unknown id; the message lists the known ones.
    """
    if template_id in _adopted:
        return _adopted[template_id]
    if template_id not in list_packaged_ids():
        raise TemplateError(f"no template {template_id!r}; the templates are {', '.join(list_template_ids())}")
    source = resources.files(__package__).joinpath("templates", f"{template_id}.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(source), Template)


def list_template_ids() -> tuple[str, ...]:
    """List the ids of all templates, the packaged ones first, each part sorted."""
    return (*list_packaged_ids(), *sorted(_adopted))


@cache
def list_packaged_ids() -> tuple[str, ...]:
    files = resources.files(__package__).joinpath("templates").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def render(template: Template, values: Mapping[str, Value]) -> str:
    """Fill every slot of the template's text.

    A document reads "Problem: ...", a new line, "Solution: ..." (its text alone if it has no problem); in a list each
    is followed by an empty line, and has its number in front of it if the template wants that.

    Raises:
        TemplateError: for a value without a slot, or a required slot without a value.
    """
    undeclared = sorted(values.keys() - set(template.slots))
    if undeclared:
        slots = ", ".join(template.slots)
        raise TemplateError(f"template {template.id!r} has no slot {undeclared[0]!r}; its slots are: {slots}")
    missing = [slot for slot in template.required if slot not in values]
    if missing:
        raise TemplateError(f"template {template.id!r} needs a value for its slot {missing[0]!r}")
    texts = dict(template.defaults)
    for slot, value in values.items():
        if isinstance(value, str):
            texts[slot] = value
        else:
            numbered = template.numbered
            texts[slot] = _show_document(value) if isinstance(value, Document) else show_documents(value, numbered)
    return _SLOT.sub(lambda match: texts.get(match[1], ""), template.text)


def show_documents(documents: Sequence[Document], numbered: bool = False) -> str:  # noqa: FBT001, FBT002 - a property of the template
    """Format documents as prompts show a list: each followed by an empty line, and numbered from [1] if asked."""
    numbers = [f"[{number}] " if numbered else "" for number in range(1, len(documents) + 1)]
    return "".join(f"{number}{_show_document(each)}\n\n" for number, each in zip(numbers, documents, strict=True))


def _show_document(document: Document) -> str:
    if not document.problem:
        return document.text
    return f"Problem: {document.problem}\nSolution: {document.text}"


@cache
def make_template_reference(template_id: str) -> str:
    """Return `id@hash`: requests name their template so, and a changed text makes another call."""
    return f"{template_id}@{template(template_id).hash}"


class TemplateChanged(Exception):
    """The installed template differs from the one that a queued call names."""


def render_request(request: Request, library: Mapping[str, Document], stored: Mapping[str, Template]) -> Prompt:
    """Return the prompt of a request; `stored` has the prompts that users have stored, by hash.

    Raises:
        TemplateChanged: the installed template is not the one that the request names.
        KeyError: a document, or a stored prompt, is missing.
        TemplateError: the prompt cannot be filled with the request's values.
    """
    if request.messages:
        return request.messages
    name, _, hash_ = request.template.partition("@")
    if name and make_template_reference(name) != request.template:
        raise TemplateChanged(f"the request uses {request.template}, but {make_template_reference(name)} is installed")
    values: dict[str, Value] = {}
    for slot, value in request.values.items():
        if isinstance(value, str):
            values[slot] = value
        elif value is not None:
            values[slot] = library[value.doc] if isinstance(value, DocumentRef) else [library[ref.doc] for ref in value]
    return render_messages(template(name) if name else stored[hash_], values)


def render_messages(template: Template, values: Mapping[str, Value]) -> Prompt:
    """Fill the template: its text, or a conversation if it has a system prompt or examples.

    Raises:
        TemplateError: as `render`.
    """
    asked = render(template, values)
    if not template.system and not template.examples:
        return asked
    messages = [Message(role="system", content=template.system)] if template.system else []
    for example in template.examples:
        shown = {"question": example.question, "context": f"{example.context}\n\n" if example.context else ""}
        text = render(template, {slot: value for slot, value in shown.items() if slot in template.slots})
        messages += [Message(role="user", content=text), Message(role="assistant", content=example.answer)]
    return (*messages, Message(role="user", content=asked))


# Prompts for answers. Users store their own (shared/storage/prompts.py), each as a template whose id is empty: its hash
# is that of the content alone, so the same content under two names makes the same calls.

ANSWER_SLOTS = ("question", "context")
SHIPPED_ANSWERS = ("cot", "choice", "short-answer", "answer", "cited")
"""Shipped prompts for answers: mathematics, a choice, a few words, free text, and free text that cites documents."""
MOST_EXAMPLES = 32


def make_answer_prompt(text: str, system: str = "", examples: Sequence[Example] = ()) -> Template:
    """Make the template of a user's prompt.

    Raises:
        TemplateError: it does not show the question, or uses a placeholder that does not exist.
    """
    used = set(_SLOT.findall(text))
    if unknown := sorted(used - set(ANSWER_SLOTS)):
        there = "{{question}} and {{context}}"
        raise TemplateError(f"`text` uses {{{{{unknown[0]}}}}}; the placeholders are {there}")
    if "question" not in used:
        raise TemplateError("`text` has no {{question}}, so the model would not see the question")
    optional = ("context",) if "context" in used else ()
    return Template(
        id="", version=1, text=text, required=("question",), optional=optional, system=system, examples=tuple(examples)
    )


def list_references(request: Request) -> list[DocumentRef]:
    """Return the documents that a request's prompt contains."""
    values = request.values.values()
    single = [value for value in values if isinstance(value, DocumentRef)]
    return single + [ref for value in values if isinstance(value, list) for ref in value]


# Detect the language of a question by its script: prompts are written in the same language.

Language = Literal["en", "zh"]

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z]{2,}")


def detect_language(text: str) -> Language:
    """Return `zh` if `text` has more Chinese characters than Latin words of two or more letters, else `en`.

    Formulas do not count. Languages in other scripts are `en`, the language of the prompts that there always are;
    Japanese is `zh` if it has enough kanji.
    """
    spoken = "".join(list_prose(text))
    return "zh" if len(_HAN.findall(spoken)) > len(_WORD.findall(spoken)) else "en"


def localise(template_id: str, text: str) -> str:
    """Return the id of the template in the language of `text`: `cot-zh` for `cot`, if it exists.

    Name the template by a literal: that is how a pipeline's hash knows which templates the module uses.
    """
    chinese = f"{template_id}-zh"
    return chinese if detect_language(text) == "zh" and chinese in list_template_ids() else template_id


# Grade with the judge model: make the call that rates a reply by a rubric, and the verdict from its rating.

RUBRIC = "The answer is correct and answers the question. Where there is a reference answer, it says the same."
"""Of a job and items that have none."""


def make_rating_call(answer: str, item: Item, grading: GradingParams) -> Judge:
    """Make the call that rates `answer` by the item's rubric, else the job's, else the default one."""
    golds = [*([] if item.gold is None else [item.gold]), *item.expected.golds]
    slots = {
        "answer": answer,
        "reference": f"Reference answer: {' or '.join(golds)}\n" if golds else "",
        "rubric": item.expected.rubric or grading.rubric or RUBRIC,
    }
    template = localise("answer-rubric", item.question)
    return Judge(rubric=template, question=item.question, slots=slots, decoding=grading.decoding)


# Parse the judge's replies, without the reasoning of a model before them.
#
# A rating is a whole number from 1 to 5, a label one from 1 to the highest that its prompt offers. One on another scale
# (4/10, 80%), a range (3-4) and a fraction (4.5) are none: nothing is converted, rounded, clamped or guessed, and the
# reply is unreadable.

_DETAIL_CHARACTERS = 120
_RATING = re.compile(r"([1-5])(?:\.0+)?")
_MARKS = r"""[ \t"'“”*_`()\[\]]{0,8}"""
"""Quotes, brackets and Markdown around a number."""
_DIGITS = r"[-+]?[0-9]+(?:[.,][0-9]+)?"
_UNIT = rf"(?:(?:points?|stars?|分|颗?星){_MARKS})?"
_OUT_OF = (
    r"(?:[/⁄]|out of[^\d\n]{0,20}?|of\b|,? ?(?:满分|总分)[^\d\n]{0,4}"
    r"|(?:on )?(?:an? |the )?scale\b[^\d\n]{0,12}(?:\d+ ?(?:-|–|~|to|到|至) ?)?)"
)
_TO = r"(?:[-–—−~〜]|to\b|or\b|[到至或])"
_BEHIND = rf"{_MARKS}{_UNIT}(?:%|per ?cent|(?:{_OUT_OF}|{_TO}){_MARKS}{_DIGITS})"
"""Text that changes the meaning of the number before it: a scale, a range or a percentage."""
_OUT_OF_FIVE = re.compile(rf"{_MARKS}{_UNIT}{_OUT_OF}{_MARKS}5(?:\.0+)?", re.IGNORECASE)
_VALUE = rf"(?P<number>{_DIGITS})(?P<behind>{_BEHIND})?"
_BRACKETED = re.compile(rf"\[\[\s*{_VALUE}{_UNIT}\s*\]\](?P<after>{_BEHIND})?", re.IGNORECASE)
_NAME = r"(?:(?<![a-z])(?:rating|score|grade)(?![a-z])|评分|打分|得分|给分|分数)"
_JSON = re.compile(rf"""{_NAME}["'“”]\s*:\s*["'“]?{_VALUE}""", re.IGNORECASE)
_GAP = r"[^\w.,;!?%+−-]{0,12}"
_NAMED = re.compile(
    rf"{_NAME}(?:\s*[(\[](?P<scale>[^()\[\]\n]{{1,40}})[)\]][*_]*\s*(?::|=|is\b))?"
    rf"{_GAP}(?:(?:is|of|as|would be|should be|[是为给]){_GAP})?(?:[-–—]\s+)?{_VALUE}",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"[^\w+−-]*{_VALUE}(?:\s*(?:points?|stars?|分|颗?星))?\W*", re.IGNORECASE)
_WHOLE = re.compile(r".*[,;}\n!?.。](?=\D)", re.DOTALL)
"""Up to the last sign that ends a number: what follows may continue behind the token limit."""
_NUMBER = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
# A number that the token limit may have cut has nothing behind it.
_SCORE = re.compile(rf"""["']relevance_score["']\s*:\s*["']?({_NUMBER})["']?\s*[,}}\n]""")
_REASON = re.compile(r""""reasoning"\s*[:：]\s*"(?P<reason>(?:[^"\\]|\\.)*)""", re.DOTALL)


def parse_rating(text: str, *, truncated: bool) -> Rated | Failure:
    """Find the rating in a judge's reply: exactly one distinct `[[1]]` to `[[5]]`, however often it is repeated.

    Blanks and full-width characters, `[[4.0]]` and `[[4/5]]` are read as well. Two different numbers are no rating: the
    prompts ask for one, not for the last one, so its place settles nothing.
    Returns a `Failure` otherwise: TRUNCATED if the token limit ended a reply that holds no `[[n]]`, else UNPARSED.
    (Seed document 000, section 3.2.2, takes any digit and the first match.)
    """
    found = list(_BRACKETED.finditer(_read_characters(text)))
    return _agree(found, text, "no single [[1]] to [[5]]", truncated=truncated)


def parse_grade(text: str, *, truncated: bool) -> Rated | Failure:
    """Read the rating in a reply to a rubric: `[[4]]`, else `"rating": 4` in JSON, else in words, else a number alone.

    All ratings in the first of these forms that occurs must be equal; `4/5` and `4 out of 5` are 4.
    Returns a `Failure` otherwise, as `parse_rating` does; a number at which the token limit ended the reply is none,
    as 4 may be the beginning of 4/10.
    """
    read = _read_characters(text)
    if _BRACKETED.search(read):
        return parse_rating(text, truncated=truncated)
    if truncated:
        whole = _WHOLE.match(read)
        read = whole[0] if whole else ""
    found = list(_JSON.finditer(read)) or list(_NAMED.finditer(read)) or list(filter(None, [_ALONE.fullmatch(read)]))
    return _agree(found, text, "no single rating from 1 to 5", truncated=truncated)


def _read_characters(text: str) -> str:
    """Return the reply itself, with full-width characters as plain ones."""
    return unicodedata.normalize("NFKC", remove_reasoning(text))


def _agree(found: Iterable[re.Match[str]], text: str, problem: str, *, truncated: bool) -> Rated | Failure:
    ratings = {_read_value(match) for match in found}
    if len(ratings) == 1 and (rating := next(iter(ratings))) is not None:
        return Rated(rating=rating, text=text)
    kind = FailureKind.TRUNCATED if truncated and not ratings else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"{problem} in {_shorten(text)!r}")


def _read_value(match: re.Match[str]) -> int | None:
    """Return the rating from 1 to 5, or None for other numbers."""
    groups = match.groupdict()
    said = [groups[name] for name in ("behind", "after") if groups.get(name)]
    scale = [float(number) for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", groups.get("scale") or "")]
    number = _RATING.fullmatch(match["number"])
    if number is None or not all(map(_OUT_OF_FIVE.fullmatch, said)) or (scale and max(scale) != 5):
        return None
    return int(number[1])


def parse_label(text: str, *, truncated: bool, most: int) -> Rated | Failure:
    """Find the label in a judge's reply: exactly one distinct `[[1]]` to `[[most]]`, however often it is repeated.

    Returns a `Failure` otherwise, as `parse_rating` does. Numbers on a scale such as `[[3/3]]` are not labels.
    """
    found = list(_BRACKETED.finditer(_read_characters(text)))
    problem = f"no single [[1]] to [[{most}]]"
    read = _agree(found, text, problem, truncated=truncated)
    if isinstance(read, Rated) and (read.rating > most or any(match["behind"] or match["after"] for match in found)):
        return Failure(kind=FailureKind.UNPARSED, detail=f"{problem} in {_shorten(text)!r}")
    return read


LABELS: Mapping[str, int] = {
    f"{name}{language}": most
    for name, most in (("support", 3), ("sufficient", 3), ("addresses", 4), ("standalone", 2))
    for language in ("", "-zh")
}
"""Highest label that a template offers, by its id: its replies are labels, and no ratings."""
PARSERS: Mapping[str, Callable[..., Rated | Failure]] = {
    "answer-rubric": parse_grade,
    "answer-rubric-zh": parse_grade,
    **{name: partial(parse_label, most=most) for name, most in LABELS.items()},
}
"""By template id; all other rubrics ask for `[[1]]` to `[[5]]` and are read by `parse_rating`."""


def list_labels(request: Request) -> tuple[str, ...]:
    """Return the labels that a call may be answered with, as they occur in a reply; empty if it does not ask for a
    label.

    Calls that are read by log-probabilities have none, since a constraint would change these. Neither have ratings of
    `relevance`: pipelines make the same calls, and their answers should not depend on how labels are asked for.
    """
    most = 0 if request.logprobs else LABELS.get(request.template.partition("@")[0], 0)
    return tuple(f"[[{label}]]" for label in range(1, most + 1))


# Ask the judge model how relevant a document is, and read the probabilities of its reply.
#
# `yes-no` has the form of the Qwen3 rerankers: P(yes) / (P(yes) + P(no)) at the first token (Zhang et al. 2025, section
# 2). `rating` is the mean of the ratings 1 to 5, weighed by their probabilities (G-Eval, Liu et al. 2023), which ranks
# better than yes and no with some models (Zhuang et al. 2024). Greedy decoding, so that every draw is the same.

ALTERNATIVES = 5
"""Alternatives of each token: all ratings, and as many as text-generation-inference gives by default."""
YES_NO_TOKENS = 3
"""Room for `**Yes**`; by probabilities the first token is enough."""
_RATING_TOKENS = 10
_DECORATION = " \t\n\"'“”*_`()[].,:"
_LABEL = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
_ENDED_THINKING = "</think>"


def ask_relevance(question: str, document: str, by: RelevanceSource) -> Judge:
    """Make the call that asks how relevant a document, named by its hash, is to the question.

    `by` is `yes-no` or `rating`.
    """
    return Judge(
        rubric="relevance-yes-no" if by == "yes-no" else localise("relevance", question),
        document=document,
        question=question,
        decoding=Decoding(temperature=0.0, max_tokens=YES_NO_TOKENS if by == "yes-no" else _RATING_TOKENS),
        logprobs=ALTERNATIVES,
    )


def parse_relevance(text: str, tokens: Sequence[Token], template_id: str, *, truncated: bool) -> Relevance | Failure:
    """Read the relevance in the reply to a call of `ask_relevance`.

    Without log-probabilities, the label in the text is the judgement: yes 1, no 0, and (rating - 1) / 4.
    Returns a `Failure` if the label is missing: TRUNCATED if the token limit ended a reply without any, else UNPARSED.
    """
    places = _skip_thinking(tokens)
    if template_id != "relevance-yes-no":
        rated = parse_rating(text, truncated=truncated)
        if isinstance(rated, Failure):
            return rated
        place = next((each for each in places if _as_rating(each.text) == str(rated.rating)), None)
        labels = _sum_labels(place, _as_rating)
        if not labels:
            return Relevance(probability=rated.quality, text=text)
        mean = sum(int(label) * share for label, share in labels.items()) / sum(labels.values())
        return Relevance(probability=(mean - 1) / 4, text=text, labels=labels)
    # A reply that does not begin with yes or no may still be decided by the alternatives of its first token.
    place = next((each for each in places if _as_yes_no(each.text)), places[0] if places else None)
    labels = _sum_labels(place, _as_yes_no)
    if labels:
        return Relevance(probability=labels.get("yes", 0.0) / sum(labels.values()), text=text, labels=labels)
    said = _LABEL.match(_read_characters(text))
    if said is None:
        kind = FailureKind.TRUNCATED if truncated and not text.strip() else FailureKind.UNPARSED
        return Failure(kind=kind, detail=f"neither yes nor no in {_shorten(text)!r}")
    return Relevance(probability=float(said[1].lower() == "yes"), text=text)


def _skip_thinking(tokens: Sequence[Token]) -> Sequence[Token]:
    ended = next((place for place, each in enumerate(tokens) if _ENDED_THINKING in each.text), -1)
    return [each for each in tokens[ended + 1 :] if each.text.strip()]


def _as_yes_no(text: str) -> str:
    label = text.strip(_DECORATION).lower()
    return label if label in ("yes", "no") else ""


def _as_rating(text: str) -> str:
    label = text.strip(_DECORATION)
    return label if label in ("1", "2", "3", "4", "5") else ""


def _sum_labels(token: Token | None, read: Callable[[str], str]) -> dict[str, float]:
    """Return the probability of each label at the token's place, spelt in any way; empty without a label."""
    found: dict[str, float] = {}
    if token is not None:
        for text, logprob in {**token.top, token.text: token.logprob}.items():
            if (label := read(text)) and (share := math.exp(logprob)):
                found[label] = found.get(label, 0.0) + share
    return found


class Critique(NamedTuple):
    """A critic's score and reason for a document."""

    score: float
    """Relevance, in [0, 1]."""
    reason: str = ""


def parse_critique(text: str, *, truncated: bool) -> Critique | Failure:
    """Parse the score and the reason in a critic's JSON (seed document 004, section 2.1).

    The fields are looked for one by one, as small models wrap JSON in other text, leave its end out and write formulas
    with single backslashes, which no JSON decoder accepts. There must be exactly one distinct score in [0, 1]; nothing
    is clamped. Returns a `Failure` otherwise: TRUNCATED if the token limit ended a text without a score, else UNPARSED.
    """
    found = {float(number) for number in _SCORE.findall(_read_characters(text))}
    if len(found) == 1 and 0 <= (score := found.pop()) <= 1:
        reason = _REASON.search(remove_reasoning(text))
        return Critique(score, _unescape(reason["reason"]) if reason else "")
    kind = FailureKind.TRUNCATED if truncated and not found else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"no single `relevance_score` from 0 to 1 in {_shorten(text)!r}")


def _unescape(text: str) -> str:
    """Return the content of a JSON string, or the text itself if it is not valid."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _shorten(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARACTERS else text[: _DETAIL_CHARACTERS - 1] + "…"
