"""Read another system's answers from JSON lines, tables, and the logs of other programs."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from mathrag.errors import Invalid, InvalidLine
from mathrag.reading import columns, lines, rows
from mathrag.reading.columns import IMPORTED, SHOWN, Columns
from mathrag.reading.lines import Defect, Fields, Row
from mathrag.reading.rows import Format
from mathrag.reading.tables import ColumnNames
from mathrag.reasoning import remove_reasoning


class ColumnMapping(NamedTuple):
    """Columns of the fields of a line."""

    columns: Columns
    first_repeat: int = 0

    @property
    def names(self) -> ColumnNames:
        """Return the columns and their types for a table; an empty cell is null."""
        known = frozenset(name for names in IMPORTED.values() for name in names)
        # A `context` may be a text; it is read only if it is a list.
        return ColumnNames(self.columns, known, frozenset(SHOWN), empty=None, texts=frozenset(("context",)))


def make_mapping(pairs: Sequence[str], first_repeat: int = 0) -> ColumnMapping:
    """Make a mapping from pairs such as "answer=prediction".

    Raises:
        Invalid: a text is not a pair, or it names an unknown field; the message names it.
    """
    return ColumnMapping(Columns(IMPORTED, pairs), first_repeat)


# Logs of other programs as lines of answers: inspect_ai, lm-evaluation-harness, FlashRAG, OpenAI's batches, ragas
# and DeepEval.
#
# A line has the fields of `COLUMNS`: the item's names, the text, the answer that the program extracted, its score, or
# the error of a failed sample.

SCORES = ("exact_match", "em", "acc", "exact", "accuracy", "math_verify")
"""Metrics that decide whether an answer is right, in the order of preference; others, such as F1, do not."""
Answers = Callable[[Fields], list[Fields]]
"""Function that reads the answers of one sample; several if the model was asked several times."""


class Layout(StrEnum):
    """The program that wrote a log."""

    INSPECT = "inspect"
    LM_EVAL = "lm-eval"
    FLASHRAG = "flashrag"
    OPENAI_BATCH = "openai-batch"
    RAGAS = "ragas"
    DEEPEVAL = "deepeval"


class LogLimits(NamedTuple):
    """Maximum sizes in bytes."""

    line: int = lines.MAX_LINE_BYTES
    value: int = 1 << 28
    """Size of a log that is a single JSON value, which is kept in memory."""
    sample: int = 1 << 24
    """Size of one sample of an archive: a packed sample of 47 KB can have more than 1 GB."""
    unpacked: int = 1 << 34
    """Size of all samples of an archive: a sample of inspect_ai has 20 to 250 KB with its events."""


LIMITS = LogLimits()
"""Limits of a process that only reads the log."""


def read_log(file: IO[bytes], source: str, layout: Layout, limits: LogLimits = LIMITS) -> Iterator[Row]:
    """Yield every answer of the log as the fields of a line, numbered by its sample, from 1.

    Raises:
        InvalidLine: the log is truncated, unpacks to more than the limits, or has another layout.
    """
    iterate, read_sample = _open_layout(layout)
    for number, sample in enumerate(iterate(file, source, limits), start=1):
        found: Sequence[Fields | Defect]
        try:
            found = read_sample(_parse_sample(sample))
            lines.check_strings(found)
        except Defect as defect:
            found = [defect]
        except (AttributeError, IndexError, KeyError, TypeError):
            found = [Defect(f"is not a sample of a log of {layout.value}; export it again")]
        yield from ((source, number, each) for each in found)


def _open_layout(layout: Layout) -> tuple[Callable[[IO[bytes], str, LogLimits], Iterator[Any]], Answers]:
    """Return the function that yields the samples of a log, and the one that reads the answers of a sample."""
    match layout:
        case Layout.INSPECT:
            return _inspect_samples, _read_inspect
        case Layout.LM_EVAL:
            return _read_json_lines, _LmEval()
        case Layout.FLASHRAG:
            return partial(_read_array, field=None), _read_flashrag
        case Layout.OPENAI_BATCH:
            return _read_json_lines, _read_openai_batch
        case Layout.RAGAS:
            return _ragas_samples, _read_ragas
        case Layout.DEEPEVAL:  # cases of a test run, or of a dataset saved as JSON
            return partial(_read_array, field="testCases"), _read_deepeval


def _parse_sample(sample: Any) -> Fields:
    if isinstance(sample, Defect):
        raise sample
    if isinstance(sample, bytes):
        try:
            sample = _decode(sample)
        except ValueError as error:
            raise Defect(f"is truncated or not JSON ({error}); copy the log again") from error
    if not isinstance(sample, dict):
        raise Defect(f"contains {lines.name(sample)} instead of a sample; export the log again")
    return sample


def _decode(content: bytes) -> Any:
    """Parse JSON that may contain NaN: Python writes NaN into logs, as scores that are not read.

    Raises:
        ValueError: the content is not JSON.
    """
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(content)
        except RecursionError as error:
            raise ValueError(lines.NESTED_TOO_DEEPLY) from error


def _inspect_samples(file: IO[bytes], source: str, limits: LogLimits) -> Iterator[Any]:
    from mathrag.reading import archives  # most commands need no Zstandard

    is_archive = file.read(len(archives.MAGIC)) == archives.MAGIC
    file.seek(0)
    if not is_archive:
        yield from _read_array(file, source, limits, "samples")
        return
    samples = archives.contents(file, source, re.compile(r"(?s)samples/.*\.json"), limits.sample, limits.unpacked)
    first = next(samples, None)
    if first is None:
        raise InvalidLine(source, 1, "is an archive without `samples/`; finish the evaluation first")
    yield from chain([first], samples)


def _read_array(file: IO[bytes], source: str, limits: LogLimits, field: str | None) -> Iterator[Any]:
    """Yield the members of a log that is a list, or an object with the list in `field`."""
    yield from _require_list(_read_single_value(file, source, limits.value), field, source)


def _read_json_lines(file: IO[bytes], _: str, limits: LogLimits) -> Iterator[bytes | Defect]:
    for _number, raw in lines.number_lines(file, limits.line):
        yield lines.make_too_long_defect(limits.line) if lines.is_too_long(raw, limits.line) else raw


def _read_single_value(file: IO[bytes], source: str, most: int) -> Any:
    content = file.read(most + 1)
    if len(content) > most:
        raise InvalidLine(source, 1, f"has more than {most} bytes in one JSON value; split it")
    try:
        return _decode(content)
    except ValueError as error:
        problem = f"is truncated or not JSON ({error})"
        raise InvalidLine(source, 1, f"{problem}; copy the log again, or correct --layout") from error


def _ragas_samples(file: IO[bytes], source: str, limits: LogLimits) -> Iterator[Any]:
    """Yield the rows of a result or a dataset: JSON lines, or a list or columns in the form of pandas."""
    if _is_json_lines(file):
        yield from _read_json_lines(file, source, limits)
        return
    value = _read_single_value(file, source, limits.value)
    if isinstance(value, dict) and value and all(isinstance(column, dict) for column in value.values()):
        places = dict.fromkeys(place for column in value.values() for place in column)
        value = [{name: column.get(place) for name, column in value.items()} for place in places]
    yield from _require_list(value, None, source)


def _is_json_lines(file: IO[bytes]) -> bool:
    """Return True if the first line is a complete object, but not one of columns."""
    first = file.readline(lines.MAX_LINE_BYTES)
    more = file.read(1)
    file.seek(0)
    try:
        value = _decode(first)
    except ValueError:
        return False
    return isinstance(value, dict) and (bool(more) or not all(isinstance(each, dict) for each in value.values()))


def _require_list(value: Any, field: str | None, source: str) -> list[Any]:
    found = value.get(field) if field and isinstance(value, dict) else value
    if not isinstance(found, list):
        problem = f"has no list of samples{f' under `{field}`' if field else ''}"
        raise InvalidLine(source, 1, f"{problem}; export the log again, or correct --layout")
    return found


def _read_inspect(sample: Fields) -> list[Fields]:
    """Read a sample of inspect_ai, which numbers samples from 1 if the dataset has no ids."""
    output = sample.get("output") or {}
    found: Fields = {"id": sample["id"], "question": _read_question(sample.get("input"))}
    if isinstance(sample["id"], int) and sample["id"] > 0:
        found["index"] = sample["id"] - 1
    found["repeat"] = sample.get("epoch", 1) - 1
    if not output.get("choices"):
        return [_drop_nulls({**found, "error": sample.get("error") or "its model gave no answer"})]
    text = _join_parts(output["choices"][0]["message"].get("content"))
    usage = output.get("usage") or {}
    found |= {
        "text": text, "seconds": sample.get("total_time"),
        "prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens"),
    }  # fmt: skip
    return [_drop_nulls({**found, **_read_inspect_score(sample.get("scores") or {}, text)})]


def _read_question(asked: Any) -> str | None:
    """Return the question: inspect_ai has a text, or the messages of a chat."""
    if isinstance(asked, list):
        asked = next((each.get("content") for each in reversed(asked) if each.get("role") == "user"), None)
    return _join_parts(asked) or None


def _join_parts(content: Any) -> str:
    """Return the text of a message, which may be a list of parts, without reasoning and tool calls."""
    if isinstance(content, list):
        return "".join(each["text"] for each in content if each.get("type") in ("text", "output_text"))
    return content or ""


def _read_inspect_score(scores: Fields, text: str) -> Fields:
    """Read the first scorer that gave a score: "C" is correct, "I" incorrect, "N" no answer, "P" partly correct.

    Some scorers store the whole text as the answer; such an answer is ignored.
    """
    values = {"C": 1.0, "I": 0.0, "N": 0.0, True: 1.0, False: 0.0}
    for score in scores.values():
        value = score.get("value")
        number = values.get(value) if isinstance(value, str | bool) else value
        if not isinstance(number, int | float) or math.isnan(number):
            continue
        return {"score": number, "answer": _take_extract(score.get("answer"), text)}
    return {}


def _take_extract(answer: Any, text: str | None) -> str | None:
    """Return the answer that another program extracted, if it is a part of the text after the reasoning.

    Otherwise the grader's rules find the answer in the text: some scorers return the whole text, the text in lower
    case, or a number from a truncated thought.
    """
    kept = remove_reasoning(text or "")
    if not isinstance(answer, str) or not _letters(answer) or _letters(answer) == _letters(kept):
        return None
    found = re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", kept, re.IGNORECASE)
    return answer if found else None


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).casefold()


def _read_flashrag(sample: Fields) -> list[Fields]:
    """Read a line of FlashRAG; it has `raw_pred` if a function of the user derived `pred` from it."""
    output = sample["output"]
    if "pred" not in output:
        raise Defect("has no `output.pred`; export the log again after the generator has answered")
    text, answer = output.get("raw_pred", output["pred"]), output["pred"] if "raw_pred" in output else None
    return [_drop_nulls({
        "id": sample.get("id"), "question": sample.get("question"), "text": text or "", "answer": answer,
        "score": _read_score(output.get("metric_score") or {}),
    })]  # fmt: skip


def _read_score(metrics: Fields) -> float | None:
    found = next((metrics[name] for name in SCORES if isinstance(metrics.get(name), int | float)), None)
    return None if found is None or math.isnan(found) else float(found)


class _LmEval:
    """Reads lines of lm-evaluation-harness, which writes one line per document and filter, and uses the first filter.

    Older logs have no field `filter` and repeat the line itself.
    """

    def __init__(self) -> None:
        self._filter: str | None = None
        self._lines: set[tuple[Any, int]] = set()

    def __call__(self, sample: Fields) -> list[Fields]:
        drawn = sample["resps"][0]
        texts = drawn if isinstance(drawn, list) else [drawn]
        if not all(isinstance(each, str | None) for each in texts):
            raise Defect(
                "is of a task that compares likelihoods, so it has no generated text; import a generative task"
            )
        chosen = sample.get("filter")
        if chosen is None:
            line = (sample["doc_id"], hash(tuple(texts)))
            if line in self._lines:
                return []
            self._lines.add(line)
        self._filter = chosen if self._filter is None else self._filter
        if chosen != self._filter:
            return []
        # The item's names: its id and question, if the document has them, and its position in the task.
        document = sample.get("doc")
        document = document if isinstance(document, dict) else {}
        id_ = next((document[name] for name in columns.IDS if isinstance(document.get(name), str | int)), None)
        question = next((document[name] for name in columns.QUESTIONS if isinstance(document.get(name), str)), None)
        named = {"id": id_, "question": question, "index": sample["doc_id"]}
        filtered = _read_filtered(sample, texts)
        score = _read_score(sample) if len(texts) == 1 else None
        return [
            _drop_nulls({**named, "repeat": repeat, "text": text or "", "answer": answer, "score": score})
            for repeat, (text, answer) in enumerate(zip(texts, filtered, strict=True))
        ]


def _read_filtered(sample: Fields, texts: list[str | None]) -> list[str | None]:
    """Return the answers that the filter found for each draw; it writes "[invalid]" if it found none."""
    filtered = sample.get("filtered_resps") or []
    if len(filtered) == 1 and isinstance(filtered[0], list):
        filtered = filtered[0]
    if len(filtered) != len(texts):
        return [None] * len(texts)  # for example, the majority of all draws
    return [_take_extract(answer, text) for text, answer in zip(texts, filtered, strict=True)]


def _read_openai_batch(sample: Fields) -> list[Fields]:
    """Read a line of the output or the error file of OpenAI's Batch API: chat completions, responses, completions.

    A refusal is a wrong answer; a failed request has no answer.
    """
    response = sample.get("response") or {}
    body = response.get("body") or {}
    named = {"id": sample["custom_id"]}
    error = sample.get("error") or body.get("error")
    if error or response.get("status_code", 200) != 200:
        return [{**named, "error": error or f"status {response.get('status_code')}"}]
    texts = [
        _join_parts(choice["message"].get("content")) if "message" in choice else choice["text"]
        for choice in body.get("choices", ())
    ]
    if "output" in body:
        texts = ["".join(_join_parts(each["content"]) for each in body["output"] if each.get("type") == "message")]
    usage = (body.get("usage") or {}) if len(texts) == 1 else {}
    if not texts:
        raise Defect("has no `choices` and no `output`; export the results of chat completions or responses")
    return [
        _drop_nulls({
            **named, "repeat": repeat, "text": text,
            "prompt_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
            "completion_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
        })
        for repeat, text in enumerate(texts)
    ]  # fmt: skip


def _read_ragas(sample: Fields) -> list[Fields]:
    """Read a row of ragas; older releases name the question and the reply `question` and `answer`."""
    question, text = sample.get("user_input", sample.get("question")), sample.get("response", sample.get("answer"))
    return [_drop_nulls({
        "question": _read_question(question), "text": text or "", "score": _read_score(sample),
        "contexts": sample.get("retrieved_contexts", sample.get("contexts")),
    })]  # fmt: skip


def _read_deepeval(sample: Fields) -> list[Fields]:
    """Read a case of DeepEval, which passes if all its metrics pass. A test run writes `actualOutput`, a dataset
    `actual_output`."""
    text = sample.get("actualOutput", sample.get("actual_output"))
    success = sample.get("success")
    return [_drop_nulls({
        "id": sample.get("name"), "question": sample["input"], "index": sample.get("order"), "text": text or "",
        "score": None if success is None else float(success),
        "retrieval_context": sample.get("retrievalContext", sample.get("retrieval_context")),
    })]  # fmt: skip


def _drop_nulls(found: Fields) -> Fields:
    return {name: value for name, value in found.items() if value is not None}


# Files of another system's answers: JSON lines, CSV, or the log of a program.


def read_answers(
    path: Path,
    mapping: ColumnMapping,
    *,
    layout: Layout | None = None,
    format: Format = Format.AUTO,  # noqa: A002
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yield the answers as lines; a file named .csv or .tsv is CSV unless `format` says otherwise.

    Raises:
        Invalid: a format or delimiter is given for a log, or a log of inspect_ai is read without its layout.
        InvalidLine: during iteration, at a line that cannot be read.
    """
    with path.open("rb") as file:
        if layout is not None:
            check_options(layout, format, delimiter)
            yield from read_log(file, path.name, layout)
        else:
            if format is Format.AUTO and path.suffix.lower() == ".eval":
                raise Invalid(f"{path.name} is a log of inspect_ai", hint="name its layout: inspect")
            if format is Format.AUTO and path.suffix.lower() in (".csv", ".tsv"):
                format = Format.CSV  # noqa: A001
            yield from rows.read(file, path.name, format, delimiter=delimiter, names=mapping.names)


def check_options(layout: Layout, format: Format, delimiter: str | None, reader: str | None = None) -> None:  # noqa: A002
    """Reject options that a log ignores, because its layout defines the format."""
    given = {"format": format is not Format.AUTO, "delimiter": delimiter is not None, "reader": reader is not None}
    if names := [name for name, is_given in given.items() if is_given]:
        what = f"`layout` is {layout.value}, so `{names[0]}` would be ignored"
        raise Invalid(what, hint="remove one of the two")
