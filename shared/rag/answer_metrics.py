"""Metrics of answers and their documents, from labels that the judge model gives: most need no gold answer.

A metric is a generator function. It yields lists of calls, is sent lists of their replies, and returns scores by name.
Each call asks for the label of one sentence, one document or one reply. A label that is missing never becomes a score:
the score then has no value, and says between which bounds it lies. A plug-in adds metrics in the same way.
"""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from shared import canonical
from shared.calls import Call, Decoding, Judge, Write, Yielded
from shared.params import MetricsParams
from shared.rag.prompts import localise
from shared.rag.text import CJK, split_sentences
from shared.replies import Failure, Generated, Rated, Reply
from shared.samples import Control, ControlScore, Item, JudgedPart, Library, MetricScore
from shared.shapes import ACCURACY, EXACT, METRIC_NAME, SCORE, PluginPin

METRICS_VERSION = 1
"""Raised whenever the same replies would lead to other calls or other scores of a shipped metric."""
Scores = dict[str, MetricScore]
MetricSteps = Generator[list[Call], list[Reply], Scores]


class MeasuredAnswer(NamedTuple):
    """The data of a sample that metrics read."""

    item: Item
    reply: str
    """The whole reply, without what a model thinks aloud before it; "" if the pipeline answered nothing."""
    context: tuple[str, ...]
    """Hashes of the documents in the prompt, in order."""
    passage: str = ""
    """The text that the prompt had instead of the documents, after compression or refinement."""
    searched: bool = True
    """Whether the pipeline searched for documents."""
    refused: bool = False
    """Whether the pipeline refused the question on purpose."""
    library: Library = MappingProxyType({})
    """The documents by hash, for metrics that read them without the judge model."""
    params: MetricsParams = MetricsParams()

    @property
    def golds(self) -> tuple[str, ...]:
        """Return the item's gold answers."""
        return () if self.item.gold is None else (self.item.gold, *self.item.expected.golds)

    @property
    def source(self) -> tuple[str, ...] | str:
        """Return the context of the generator: hashes of documents, or a text."""
        return self.passage or self.context


class Metric(NamedTuple):
    """A metric by its name."""

    name: str
    measure: Callable[[MeasuredAnswer], MetricSteps]
    scores: tuple[str, ...]
    """Names of the scores that it gives."""
    needs_documents: bool = True
    """Whether it needs documents: it does not apply to a pipeline that never searches."""
    needs_gold: bool = False
    """Whether it needs a gold answer, or nuggets if it `takes_nuggets`."""
    takes_nuggets: bool = False
    needs_citations: bool = False
    """Whether the prompt must number the documents, so that replies cite them."""
    swap: Literal["", "question", "documents"] = ""
    """What is exchanged for that of other items, to control the metric; "": it has no such control."""
    plugin: PluginPin | None = None
    """The plug-in that it comes from; None if it is shipped."""


NOT_SCORES = (ACCURACY, EXACT, SCORE, "strict")
"""Names of other figures of a job."""
_adopted: dict[str, Metric] = {}
"""Metrics of plug-ins."""


def find_metric(name: str) -> Metric | None:
    """Return the metric called `name`; None if it does not exist."""
    return METRICS.get(name) or _adopted.get(name)


def get_metric(name: str) -> Metric:
    """Return the metric called `name`.

    Raises:
        LookupError: it does not exist; the message lists those that exist.
    """
    found = find_metric(name)
    if found is None:
        raise LookupError(f"no metric {name!r}; the metrics are {', '.join(list_metrics())}")
    return found


def list_metrics() -> tuple[str, ...]:
    """Return the names of all metrics, the shipped ones first."""
    return (*METRICS, *sorted(_adopted))


def list_scores() -> tuple[str, ...]:
    """Return the names of the scores of all metrics."""
    return tuple(score for name in list_metrics() for score in get_metric(name).scores)


def adopt(found: Metric) -> None:
    """Know a metric of a plug-in by its name.

    Raises:
        ValueError: it has no scores, or one of them has a name that cannot be used.
    """
    if not found.scores:
        raise ValueError("it has no scores: name at least one")
    if wrong := [score for score in found.scores if not re.fullmatch(METRIC_NAME, score) or score in NOT_SCORES]:
        raise ValueError(f"a score cannot be called {wrong[0]!r}: use lower-case letters, digits, - and _")
    if taken := sorted({*found.scores} & {*list_scores()}):
        raise ValueError(f"another metric already gives the score {taken[0]!r}; rename it")
    _adopted[found.name] = found


class SampleScores(NamedTuple):
    """The scores of a sample, and their controls if it is drawn for these."""

    scores: Scores
    controls: dict[str, ControlScore] | None


def measure_answer(answer: MeasuredAnswer, control: Control | None = None) -> Generator[Yielded, Any, SampleScores]:
    """Measure the metrics of `answer.params.names`, and if there is a `control`, the same on its material."""
    metrics = [get_metric(name) for name in answer.params.names]
    steps: dict[tuple[str, str], MetricSteps] = {("", each.name): each.measure(answer) for each in metrics}
    if control is not None:
        steps |= _start_controls(answer, metrics, control)
    found = yield from _run_side_by_side(steps)
    scores = {score: value for each in metrics for score, value in found["", each.name].items()}
    if control is None:
        return SampleScores(scores, None)
    copied = found.get(("copied", ""), {}).get("copied")
    controls = {}
    for each in metrics:
        name = each.scores[0]
        swapped, reversed_ = (found.get((way, each.name), {}).get(name) for way in ("swapped", "reversed"))
        controls[name] = ControlScore(
            swapped=swapped and swapped.value,
            copied=copied and copied.value if each.swap == "documents" else None,
            reversed=reversed_ and _compare_labels(scores[name], reversed_),
        )
    return SampleScores(scores, controls)


def _start_controls(
    answer: MeasuredAnswer, metrics: Sequence[Metric], control: Control
) -> dict[tuple[str, str], MetricSteps]:
    """Start the metrics on swapped and on reversed material, and ask whether a document supports its own sentence."""
    steps: dict[tuple[str, str], MetricSteps] = {}
    drawn = [each for each in control.documents if each not in answer.context][: max(1, len(answer.context))]
    other = {
        "question": answer._replace(item=msgspec.structs.replace(answer.item, question=control.question)),
        "documents": answer._replace(context=tuple(drawn), passage=""),
    }
    for each in metrics:
        if each.swap == "question" or (each.swap == "documents" and drawn):
            steps["swapped", each.name] = each.measure(other[each.swap])
        if each.name in REVERSIBLE and len(answer.context) > 1 and not answer.passage:
            steps["reversed", each.name] = each.measure(answer._replace(context=answer.context[::-1]))
    if any(each.swap == "documents" for each in metrics) and answer.context:
        steps["copied", ""] = _ask_copied(answer)
    return steps


def _ask_copied(answer: MeasuredAnswer) -> MetricSteps:
    """Ask whether the first document says what its own longest sentence says."""
    units = split_units(answer.library[answer.context[0]].text)
    if not units:
        return {"copied": MetricScore(not_applicable=NO_SENTENCE)}
    [reply] = yield [ask_support(answer, Unit(max((unit.text for unit in units), key=len)), answer.context[:1])]
    part = read_label(reply, "")
    return {"copied": _share([part], [_holds(part, SUPPORTED)])}


def _compare_labels(one: MetricScore, other: MetricScore) -> float | None:
    """Return the share of parts with the same label in both; None if no part has one in both."""
    pairs = [(a.label, b.label) for a, b in zip(one.parts, other.parts, strict=False) if a.text == b.text]
    known = [left == right for left, right in pairs if left is not None and right is not None]
    return sum(known) / len(known) if known else None


def _run_side_by_side(steps: Mapping[tuple[str, str], MetricSteps]) -> Generator[Yielded, Any, Any]:
    """Run several metrics, and return the scores of each.

    Equal calls of several metrics are made once. All metrics wait for their calls together, so that the judge model is
    loaded once for the first calls of all samples and metrics.
    """
    running = dict(steps)
    scores: dict[tuple[str, str], Scores] = {}
    replies: dict[tuple[str, str], Any] = dict.fromkeys(running)
    while running:
        wanted: dict[tuple[str, str], list[tuple[bytes, Call]]] = {}
        for key in tuple(running):
            try:
                wanted[key] = [(canonical.encode(call), call) for call in running[key].send(replies[key])]
            except StopIteration as stop:
                scores[key] = _check_scores(key[1], stop.value)
                del running[key]
        if wanted:
            calls = {encoded: call for asked in wanted.values() for encoded, call in asked}
            answered = dict(zip(calls, (yield list(calls.values())), strict=True))
            replies = {key: [answered[encoded] for encoded, _ in asked] for key, asked in wanted.items()}
    return scores


def _check_scores(name: str, returned: Any) -> Scores:
    """Return the scores of a metric, which may be a plug-in's; "" is one of the controls."""
    expected = get_metric(name).scores if name else ("copied",)
    if not isinstance(returned, dict) or {*returned} != {*expected}:
        raise TypeError(f"metric {name!r} has to return a dictionary with {', '.join(expected)}")
    if not all(isinstance(score, MetricScore) for score in returned.values()):
        raise TypeError(f"metric {name!r} has to return a `MetricScore` for each of its scores")
    return returned


# The calls, each of which asks for one label.

SUPPORTED = 3
"""Label of a sentence of which the source says everything."""
CONTRADICTED = 1
SUFFICIENT = 3
DECLINED = 1
"""Label of a reply that declines to answer."""
RELEVANT = 4
"""Rating from which a document counts as relevant."""


class Unit(NamedTuple):
    """A sentence, or a claim, and the sentence before it, which may say what its pronouns mean."""

    text: str
    before: str = ""


def ask_support(answer: MeasuredAnswer, unit: Unit, source: Sequence[str] | str) -> Call:
    """Ask whether the source (documents by hash, or a text) supports the unit (3), or contradicts it (1)."""
    template = localise("support", answer.item.question)
    slots = {"sentence": unit.text}
    if unit.before:
        slots["before"] = f"{'前一句：' if template == 'support-zh' else 'Sentence before: '}{unit.before}\n"
    if isinstance(source, str):
        slots["documents"] = f"{source}\n\n"
    documents = () if isinstance(source, str) else tuple(source)
    return _ask(answer, template, slots, documents)


def ask_sufficient(answer: MeasuredAnswer) -> Call:
    """Ask whether the documents alone answer the question (3)."""
    template = localise("sufficient", answer.item.question)
    if isinstance(answer.source, str):
        return _ask(answer, template, {"documents": f"{answer.source}\n\n"})
    return _ask(answer, template, {}, answer.source)


def ask_addresses(answer: MeasuredAnswer) -> Call:
    """Ask whether the reply declines to answer (1), or answers something else (2), a part (3) or all (4)."""
    return _ask(answer, localise("addresses", answer.item.question), {"reply": answer.reply})


def ask_rating(answer: MeasuredAnswer, document: str) -> Call:
    """Ask how much a document helps to answer the question, from 1 to 5: the call of `crag` and of the critic."""
    return Judge(rubric=localise("relevance", answer.item.question), document=document, question=answer.item.question)


def _ask(answer: MeasuredAnswer, template: str, slots: dict[str, str], documents: tuple[str, ...] = ()) -> Call:
    return Judge(
        rubric=template,
        documents=documents,
        question=answer.item.question,
        slots=slots,
        decoding=Decoding(temperature=0.0, max_tokens=answer.params.max_tokens),
    )


def read_label(reply: Reply, text: str) -> JudgedPart:
    """Return the label that the judge gave to `text`, or the failure that left it without one."""
    if isinstance(reply, Rated):
        return JudgedPart(text=text, label=reply.rating)
    return JudgedPart(text=text, failure=reply.kind.value if isinstance(reply, Failure) else "unparsed")


# Split a reply into units. Questions and headings are left out, because they claim nothing.

TOO_LONG = "too_long"
# Possessive repetitions, so that a reply of 100,000 equal characters takes no longer than any other.
_HEADING = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t].*|\*\*[^*\n]+(?::\*\*|\*\*:)[ \t]*)$", re.MULTILINE)
"""Markdown's headings, and bold lines that end in a colon."""
_BARE = re.compile(
    r"\W*+(?:\d{1,3}[.)\]]|(?:step|case|part)\s+\d{1,3}|(?:the )?(?:final )?(?:answer|solution)(?: is)?|答案|解|解答)?"
    r"\W*+",
    re.IGNORECASE,
)
"""Numbers of list items, and words before an answer."""
_QUESTION = re.compile(r"[?？][\"'”’)\]\s]*\Z")
_CLAIM = re.compile(r"^[ \t]*+\d{1,3}[.)、．][ \t]*+(\S.*)$", re.MULTILINE)
CLAIMS_TOKENS = 1024


def split_units(text: str) -> list[Unit]:
    """Split a reply or a gold answer into its sentences, without questions, headings and bare markers.

    A text that is one phrase, such as a number, is one unit.
    """
    units: list[Unit] = []
    before = ""
    for sentence in filter(None, map(str.strip, split_sentences(_HEADING.sub("\n", text)))):
        if _BARE.fullmatch(sentence):
            continue
        if not _QUESTION.search(sentence):
            units.append(Unit(sentence, before))
        before = sentence
    return units


def _find_units(answer: MeasuredAnswer) -> Generator[list[Call], list[Reply], list[Unit] | str]:
    """Return the units of the reply, or the kind of the failure that leaves it without them."""
    units = split_units(answer.reply)
    if answer.params.unit == "claims" and units:
        question = answer.item.question
        slots = {"question": question, "reply": answer.reply}
        decoding = Decoding(temperature=0.0, max_tokens=CLAIMS_TOKENS)
        [reply] = yield [Write(template=localise("claims", question), decoding=decoding, slots=slots)]
        if not isinstance(reply, Generated):
            return reply.kind.value if isinstance(reply, Failure) else "unparsed"
        if reply.truncated:
            return "truncated"
        units = [Unit(claim.strip()) for claim in _CLAIM.findall(reply.text)]
        if not units and reply.text.strip().upper().rstrip(".") != "NONE":
            return "unparsed"
    return TOO_LONG if len(units) > answer.params.most_units else units


# Scores from labels. None is a label that is missing.


def _share(parts: Sequence[JudgedPart], holds: Sequence[bool | None]) -> MetricScore:
    """Return the share of `holds` that is true, or its bounds; `parts` are the labelled texts."""
    low, high = (sum(each is not False if best else each is True for each in holds) for best in (False, True))
    if low == high:
        return MetricScore(value=low / len(holds), parts=tuple(parts))
    return _fail(parts, low / len(holds), high / len(holds))


def _fail(parts: Iterable[JudgedPart], low: float = 0.0, high: float = 1.0) -> MetricScore:
    parts = tuple(parts)
    return MetricScore(failures=_count_failures(parts), low=low, high=high, parts=parts)


def _count_failures(parts: Iterable[JudgedPart]) -> dict[str, int]:
    return dict(sorted(Counter(part.failure for part in parts if part.failure).items()))


def _fail_whole(kind: str) -> MetricScore:
    return MetricScore(failures={kind: 1}, low=0.0, high=1.0)


def _holds(part: JudgedPart, label: int) -> bool | None:
    return None if part.label is None else part.label == label


NO_REPLY = "there is no reply"
NO_SENTENCE = "the reply has no sentence that claims something"
NO_SEARCH = "nothing was searched"
NO_DOCUMENTS = "the prompt had no documents"
NO_GOLD = "the item has no gold answer"
NO_GOLD_OR_NUGGETS = "the item has neither a gold answer nor nuggets"
DECLINES = "the reply declines to answer"
NO_CITATIONS = "the reply cites nothing"
NOT_NUMBERED = "the prompt had a passage and no numbered documents"
NOTHING_SUPPORTED = "the documents support nothing of the gold answer"


def _judge_alone(
    answer: MeasuredAnswer, units: Sequence[Unit], source: Sequence[str] | str, replies: Sequence[Reply]
) -> Generator[list[Call], list[Reply], list[JudgedPart]]:
    """Read the labels of units against a source; where it does not fit into the prompt, ask for each document.

    Then the best label counts: a unit is supported if a document supports it, and its label is missing if none does
    and one document has no label.
    """
    parts = [read_label(reply, unit.text) for unit, reply in zip(units, replies, strict=True)]
    long = [place for place, part in enumerate(parts) if part.failure == "context_exceeded"]
    if not long or isinstance(source, str) or len(source) == 1:
        return parts
    found = iter((yield [ask_support(answer, units[place], (document,)) for place in long for document in source]))
    for place in long:
        alone = [read_label(next(found), units[place].text) for _ in source]
        labels = {part.label for part in alone}
        failure = next((part.failure for part in alone if part.failure), "")
        if SUPPORTED in labels:
            disputed = CONTRADICTED in labels
            parts[place] = JudgedPart(text=units[place].text, label=SUPPORTED, disputed=disputed)
        elif failure:
            parts[place] = JudgedPart(text=units[place].text, failure=failure)
        else:
            parts[place] = JudgedPart(text=units[place].text, label=max(part.label or 0 for part in alone))
    return parts


# The metrics.


def _measure_faithfulness(answer: MeasuredAnswer) -> MetricSteps:
    """Does the reply stay within the documents? The share of its sentences that they support (as ragas).

    A reply that declines to answer has no score. If the search found no documents, the score is 0, since nothing
    supports the reply.
    """
    if not answer.reply:
        return {"faithfulness": MetricScore(not_applicable=NO_REPLY)}
    if not answer.searched and not answer.source:
        return {"faithfulness": MetricScore(not_applicable=NO_SEARCH)}
    units = yield from _find_units(answer)
    if not units:
        return {"faithfulness": MetricScore(not_applicable=NO_SENTENCE)}
    if isinstance(units, str):
        return {"faithfulness": _fail_whole(units)}
    asked = [ask_support(answer, unit, answer.source) for unit in units] if answer.source else []
    addresses, *replies = yield [ask_addresses(answer), *asked]
    addressed = read_label(addresses, answer.reply)
    if addressed.label == DECLINED:
        return {"faithfulness": MetricScore(not_applicable=DECLINES)}
    if not answer.source:
        parts = [JudgedPart(text=unit.text) for unit in units]
        score = MetricScore(value=0.0, parts=tuple(parts))
    else:
        parts = yield from _judge_alone(answer, units, answer.source, replies)
        score = _share(parts, [_holds(part, SUPPORTED) for part in parts])
    if addressed.label is None:
        # The generator may have declined to answer, so the score may be missing.
        low, high = (score.value, score.value) if score.value is not None else (score.low, score.high)
        score = MetricScore(failures=_count_failures([addressed, *parts]), low=low, high=high, parts=score.parts)
    return {"faithfulness": score}


def _rate_documents(answer: MeasuredAnswer) -> Generator[list[Call], list[Reply], list[JudgedPart]]:
    replies = yield [ask_rating(answer, document) for document in answer.context]
    return [read_label(reply, document) for reply, document in zip(replies, answer.context, strict=True)]


def _measure_context_relevance(answer: MeasuredAnswer) -> MetricSteps:
    """How useful are the documents in the prompt? The mean of the documents' ratings R, each as (R - 1) / 4."""
    if not answer.context:
        return {"context_relevance": MetricScore(not_applicable=NO_DOCUMENTS)}
    parts = yield from _rate_documents(answer)
    low, high = (
        sum((unknown if part.label is None else (part.label - 1) / 4) for part in parts) / len(parts)
        for unknown in (0.0, 1.0)
    )
    score = MetricScore(value=low, parts=tuple(parts)) if low == high else _fail(parts, low, high)
    return {"context_relevance": score}


def _measure_context_precision(answer: MeasuredAnswer) -> MetricSteps:
    """Do useful documents come first? Average precision of the documents in prompt order, relevant from rating 4 on.

    0 if none is relevant. With a missing rating it may be anything, as one more relevant document may lower it.
    """
    if not answer.context:
        return {"context_precision": MetricScore(not_applicable=NO_DOCUMENTS)}
    parts = yield from _rate_documents(answer)
    if any(part.label is None for part in parts):
        return {"context_precision": _fail(parts)}
    relevant = [place for place, part in enumerate(parts, 1) if (part.label or 0) >= RELEVANT]
    precisions = [found / place for found, place in enumerate(relevant, 1)]
    value = sum(precisions) / len(precisions) if precisions else 0.0
    return {"context_precision": MetricScore(value=value, parts=tuple(parts))}


def _measure_context_sufficiency(answer: MeasuredAnswer) -> MetricSteps:
    """Do the documents alone answer the question? 1 or 0; 0 without documents (Joren et al. 2024)."""
    if not answer.source:
        score = MetricScore(value=0.0) if answer.searched else MetricScore(not_applicable=NO_SEARCH)
        return {"context_sufficiency": score}
    [reply] = yield [ask_sufficient(answer)]
    part = read_label(reply, "")
    return {"context_sufficiency": _share([part], [_holds(part, SUFFICIENT)])}


def _measure_answer_relevance(answer: MeasuredAnswer) -> MetricSteps:
    """Does the reply answer the question? 1 for all of it, 0.5 for a part, else 0; truth does not matter.

    `declined` is 1 for a reply that declines to answer, and for a question that the pipeline refused.
    """
    if answer.refused:
        return {"answer_relevance": MetricScore(value=0.0), "declined": MetricScore(value=1.0)}
    if not answer.reply:
        return dict.fromkeys(("answer_relevance", "declined"), MetricScore(not_applicable=NO_REPLY))
    [reply] = yield [ask_addresses(answer)]
    part = read_label(reply, "")
    if part.label is None:
        return {"answer_relevance": _fail([part]), "declined": _fail([part])}
    return {
        "answer_relevance": MetricScore(value={4: 1.0, 3: 0.5}.get(part.label, 0.0), parts=(part,)),
        "declined": MetricScore(value=float(part.label == DECLINED)),
    }


# Citations: `[1]`, `[1][3]`, `[1, 3]` number the documents in prompt order (ALCE, Gao et al. 2023).

_CITED = re.compile(r"(?<!\[)\[(\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)\](?!\])")
_BEFORE_CITED = re.compile(rf" ?{_CITED.pattern}")
_BEHIND_STOP = re.compile(rf"(?<![.!?。！？])([.!?。！？]++)[ \t]*+((?:{_CITED.pattern}[ \t]*+)+)(?=[A-Z\n{CJK}]|\Z)")
"""Citations behind the end of their sentence, which would be read as the beginning of the next one."""


CITATION_SCORES = ("citation_recall", "citation_precision")


class _CitedUnit(NamedTuple):
    unit: Unit
    cited: tuple[int, ...]
    """Numbers in the order of the reply, each once."""
    place: int
    """Place in the reply, so that equal sentences are two."""


def _find_citations(answer: MeasuredAnswer) -> list[_CitedUnit]:
    moved = _BEHIND_STOP.sub(lambda match: f" {match[2].strip()}{match[1]} ", answer.reply)
    found = []
    for place, unit in enumerate(split_units(moved)):
        numbers = [int(each) for match in _CITED.finditer(unit.text) for each in re.findall(r"\d+", match[1])]
        plain = Unit(_BEFORE_CITED.sub("", unit.text).strip(), _BEFORE_CITED.sub("", unit.before).strip())
        found.append(_CitedUnit(plain, tuple(dict.fromkeys(numbers)), place))
    return found


def _judge_citations(answer: MeasuredAnswer) -> Generator[list[Call], list[Reply], Scores]:
    """Return `citation_recall` and `citation_precision`: both metrics make the same calls."""
    if not answer.searched and not answer.source:
        return dict.fromkeys(CITATION_SCORES, MetricScore(not_applicable=NO_SEARCH))
    units = _find_citations(answer)
    reason = NOT_NUMBERED if answer.passage else NO_SENTENCE if answer.reply else NO_REPLY
    if answer.passage or not units:
        return dict.fromkeys(CITATION_SCORES, MetricScore(not_applicable=reason))
    if len(units) > answer.params.most_units:
        return dict.fromkeys(CITATION_SCORES, _fail_whole(TOO_LONG))
    # A sentence that cites nothing, or a document that does not exist, is backed by nothing.
    numbers = range(1, len(answer.context) + 1)
    backed = [each for each in units if each.cited and all(number in numbers for number in each.cited)]
    replies = yield [_ask_cited(answer, each.unit, each.cited) for each in backed]
    read = {each: read_label(reply, each.unit.text) for each, reply in zip(backed, replies, strict=True)}
    parts = [read.get(each, JudgedPart(text=each.unit.text)) for each in units]
    recalled = {each: _holds(read[each], SUPPORTED) if each in read else False for each in units}
    recall = _share(parts, [recalled[each] for each in units])
    citations = [(each, number) for each in units for number in each.cited]
    if not citations:
        return dict(zip(CITATION_SCORES, (recall, MetricScore(not_applicable=NO_CITATIONS)), strict=True))
    # Of several citations of a sentence each is needed that says so alone, or without which the others do not say so.
    sets = {
        (each, chosen): _ask_cited(answer, each.unit, chosen)
        for each, number in citations
        if len(each.cited) > 1 and recalled[each] is not False
        for chosen in ((number,), _others(each, number))
    }
    found = dict(zip(sets, (yield list(sets.values())), strict=True))
    labels = {key: read_label(reply, "") for key, reply in found.items()}
    right: list[bool | None] = []
    for each, number in citations:
        needed: bool | None = True
        if (each, (number,)) in labels:
            alone = _holds(labels[each, (number,)], SUPPORTED)
            others = _holds(labels[each, _others(each, number)], SUPPORTED)
            needed = True if alone or others is False else None if None in (alone, others) else False
        both = (recalled[each], needed)
        right.append(False if False in both else None if None in both else True)
    precision = _share([*read.values(), *labels.values()], right)
    return dict(zip(CITATION_SCORES, (recall, msgspec.structs.replace(precision, parts=())), strict=True))


def _ask_cited(answer: MeasuredAnswer, unit: Unit, numbers: Iterable[int]) -> Call:
    return ask_support(answer, unit, tuple(answer.context[number - 1] for number in numbers))


def _others(unit: _CitedUnit, number: int) -> tuple[int, ...]:
    return tuple(each for each in unit.cited if each != number)


def _measure_citation_recall(answer: MeasuredAnswer) -> MetricSteps:
    """Do the citations support the reply? The share of sentences that the cited documents support together."""
    scores = yield from _judge_citations(answer)
    return {"citation_recall": scores["citation_recall"]}


def _measure_citation_precision(answer: MeasuredAnswer) -> MetricSteps:
    """Is each citation needed? The share of citations of a supported sentence that are not superfluous."""
    scores = yield from _judge_citations(answer)
    return {"citation_precision": scores["citation_precision"]}


# With a gold answer.


def _measure_context_recall(answer: MeasuredAnswer) -> MetricSteps:
    """Did the documents hold the right answer? The share of the item's nuggets that they support.

    Without nuggets, the sentences of the gold answer take their place, and the best of several gold answers counts. 0
    if a search found nothing.
    """
    nuggets = [Unit(nugget) for nugget in answer.item.expected.nuggets]
    golds = [nuggets] if nuggets else [units for units in map(split_units, answer.golds) if units]
    if not golds:
        return {"context_recall": MetricScore(not_applicable=NO_GOLD_OR_NUGGETS)}
    if not answer.source:
        score = MetricScore(value=0.0) if answer.searched else MetricScore(not_applicable=NO_SEARCH)
        return {"context_recall": score}
    if max(map(len, golds)) > answer.params.most_units:
        return {"context_recall": _fail_whole(TOO_LONG)}
    units = [unit for gold in golds for unit in gold]
    replies = yield [ask_support(answer, unit, answer.source) for unit in units]
    parts = iter((yield from _judge_alone(answer, units, answer.source, replies)))
    scores = []
    for gold in golds:
        judged = [next(parts) for _ in gold]
        scores.append(_share(judged, [_holds(part, SUPPORTED) for part in judged]))
    bounds = [(each.low, each.high) if each.value is None else (each.value, each.value) for each in scores]
    low, high = (max(bound[end] or 0.0 for bound in bounds) for end in (0, 1))
    if low == high:
        best = max(scores, key=lambda each: each.value or 0.0)
        return {"context_recall": MetricScore(value=low, parts=best.parts)}
    failed = (part for score in scores for part in score.parts)
    return {"context_recall": _fail(failed, low, high)}


CLAIM_SCORES = (
    *("claim_precision", "claim_recall", "claim_f1", "noise_relevant", "noise_irrelevant"),
    *("hallucination", "self_knowledge", "utilisation"),
)


MOST_CLAIM_CALLS = 10_000
"""Calls for one answer above which `claims` counts as too long."""


class ClaimTable(NamedTuple):
    """Labels of u units of a reply and k units of a gold answer, with d documents; None is a missing one."""

    correct: Sequence[bool | None]
    """u: whether the gold answer says what the unit says."""
    found: Sequence[bool | None]
    """k: whether the reply says what the gold unit says."""
    supports: Sequence[Sequence[bool | None]]
    """u times d: whether the document says what the unit says."""
    holds: Sequence[Sequence[bool | None]]
    """k times d: whether the document says what the gold unit says."""


def score_claims(table: ClaimTable, failures: dict[str, int] | None = None) -> Scores:
    """Return the scores of `claims` (RAGChecker, Ru et al. 2024): whose fault is a wrong claim?

    A document is relevant if it supports a gold unit. `claim_precision` + both noises + `hallucination` = 1. A score
    that depends on a missing label has bounds; `failures` are the kinds of the missing ones.
    """
    units = len(table.correct)

    def bound(low: float, high: float) -> MetricScore:
        return MetricScore(value=low) if low == high else MetricScore(failures=failures or {}, low=low, high=high)

    def share(values: Sequence[bool | None]) -> tuple[float, float]:
        of = len(values)
        return sum(each is True for each in values) / of, sum(each is not False for each in values) / of

    precision, recall = share(table.correct), share(table.found)
    f1 = [2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall, strict=True)]
    scores = {
        "claim_precision": bound(*precision),
        "claim_recall": bound(*recall),
        "claim_f1": bound(*f1),
    }
    cells = [*table.correct, *(cell for row in (*table.supports, *table.holds) for cell in row)]
    if None in cells:
        unknown = MetricScore(failures=failures or {}, low=0.0, high=1.0)
        return scores | dict.fromkeys(CLAIM_SCORES[3:], unknown)
    relevant = {place for row in table.holds for place, cell in enumerate(row) if cell}
    counts: Counter[str] = Counter()
    for right, row in zip(table.correct, table.supports, strict=True):
        by = {place for place, cell in enumerate(row) if cell}
        if not by:
            counts["self_knowledge" if right else "hallucination"] += 1
        elif not right:
            counts["noise_relevant" if by & relevant else "noise_irrelevant"] += 1
    scores |= {name: MetricScore(value=counts[name] / units) for name in CLAIM_SCORES[3:7]}
    supported = [found for found, row in zip(table.found, table.holds, strict=True) if any(row)]
    if not supported:
        return scores | {"utilisation": MetricScore(not_applicable=NOTHING_SUPPORTED)}
    return scores | {"utilisation": bound(*share(supported))}


def _measure_claims(answer: MeasuredAnswer) -> MetricSteps:
    """Whose fault is a wrong claim: the documents', or the generator's? See `score_claims`."""
    gold = split_units(answer.golds[0]) if answer.golds else []
    if not answer.reply or not gold:
        return dict.fromkeys(CLAIM_SCORES, MetricScore(not_applicable=NO_GOLD if answer.reply else NO_REPLY))
    units = yield from _find_units(answer)
    if not units:
        return dict.fromkeys(CLAIM_SCORES, MetricScore(not_applicable=NO_SENTENCE))
    sources: list[Sequence[str] | str] = [(document,) for document in answer.context]
    if answer.passage:
        sources = [answer.passage]
    if isinstance(units, str):
        return dict.fromkeys(CLAIM_SCORES, _fail_whole(units))
    if len(gold) > answer.params.most_units or (len(units) + len(gold)) * (len(sources) + 1) > MOST_CLAIM_CALLS:
        return dict.fromkeys(CLAIM_SCORES, _fail_whole(TOO_LONG))
    replies = yield [
        *(ask_support(answer, unit, "\n".join(answer.golds)) for unit in units),
        *(ask_support(answer, unit, answer.reply) for unit in gold),
        *(ask_support(answer, unit, source) for unit in (*units, *gold) for source in sources),
    ]
    parts = [read_label(reply, "") for reply in replies]
    labels = iter([_holds(part, SUPPORTED) for part in parts])
    table = ClaimTable(
        correct=[next(labels) for _ in units],
        found=[next(labels) for _ in gold],
        supports=[[next(labels) for _ in sources] for _ in units],
        holds=[[next(labels) for _ in sources] for _ in gold],
    )
    return score_claims(table, _count_failures(parts))


METRICS = {
    each.name: each
    for each in (
        Metric("faithfulness", _measure_faithfulness, ("faithfulness",), swap="documents"),
        Metric("context_relevance", _measure_context_relevance, ("context_relevance",), swap="question"),
        Metric("context_precision", _measure_context_precision, ("context_precision",), swap="question"),
        Metric("context_sufficiency", _measure_context_sufficiency, ("context_sufficiency",), swap="question"),
        Metric(
            "answer_relevance", _measure_answer_relevance, ("answer_relevance", "declined"), needs_documents=False,
            swap="question",
        ),
        Metric(
            "citation_recall", _measure_citation_recall, CITATION_SCORES[:1], needs_citations=True, swap="documents"
        ),
        Metric("citation_precision", _measure_citation_precision, CITATION_SCORES[1:], needs_citations=True),
        Metric(
            "context_recall", _measure_context_recall, ("context_recall",), needs_gold=True, takes_nuggets=True,
            swap="documents",
        ),
        Metric("claims", _measure_claims, CLAIM_SCORES, needs_documents=False, needs_gold=True),
    )
}  # fmt: skip
"""Shipped metrics by name, in the order in which they are listed."""
REVERSIBLE = ("faithfulness", "context_sufficiency", "context_recall")
"""Metrics that show all documents together, in an order that should not matter."""
SPLITTING = ("faithfulness", "claims")
"""Metrics that split a reply into sentences or claims, as `metrics.unit` says."""
