"""Read logs of other programs as lines of answers: inspect_ai, lm-evaluation-harness and FlashRAG."""

import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import IO, Any, NamedTuple

import msgspec

from shared.errors import InvalidLine
from shared.ingest import lines
from shared.ingest.lines import Defect, Fields, Row

MAX_MESSAGE_LENGTH = 200
"""Maximum length of another program's error in a message, in characters."""

Answers = Callable[[Fields], list[Fields]]
"""The answers of one sample; there are several if a model was asked several times."""


class Layout(StrEnum):
    """The program that wrote a log."""

    INSPECT = "inspect"
    LM_EVAL = "lm-eval"
    FLASHRAG = "flashrag"


class LogLimits(NamedTuple):
    """Maximum sizes in bytes."""

    line: int = lines.MAX_LINE_BYTES
    """Of a line."""
    value: int = 1 << 28
    """Of what is held in memory: a log that is a single JSON value, or one file of an archive."""
    unpacked: int = 1 << 34
    """Of all samples of an archive: one of inspect_ai has 20 to 250 KB with its events."""


LIMITS = LogLimits()
"""Limits of a process that reads nothing else."""


def read(file: IO[bytes], source: str, layout: Layout, limits: LogLimits = LIMITS) -> Iterator[Row]:
    """Yield every answer of the log as the fields of a line, numbered by its sample, from 1.

    Raises:
        InvalidLine: it is cut off, unpacks to more than is allowed, or is no such log.
    """
    answers = _ANSWERS[layout]()
    for number, sample in enumerate(_SAMPLES[layout](file, source, limits), start=1):
        yield from ((source, number, found) for found in _answers(sample, answers, layout))


def _answers(sample: Any, answers: Answers, layout: Layout) -> list[Fields | Defect]:
    try:
        found = answers(_fields(sample))
        lines.check_strings(found)
    except Defect as defect:
        return [defect]
    except (AttributeError, IndexError, KeyError, TypeError):
        return [Defect(f"is not a sample of a log of {layout.value}; export it again")]
    return [*found]


def _fields(sample: Any) -> Fields:
    if isinstance(sample, Defect):
        raise sample
    if isinstance(sample, bytes):
        try:
            sample = _decode(sample)
        except ValueError as error:
            raise Defect(f"is truncated or not JSON ({error}); copy the log again") from error
    if not isinstance(sample, dict):
        raise Defect(f"holds {lines.name(sample)} instead of a sample; export the log again")
    return sample


def _decode(content: bytes) -> Any:
    """Parse JSON with NaN, which Python writes into logs as a score that is not read.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(content)
        except RecursionError as error:
            raise ValueError(lines.NESTED) from error


def _inspect_samples(file: IO[bytes], source: str, limits: LogLimits) -> Iterator[Any]:
    from shared.ingest import archives  # most commands need no Zstandard

    is_archive = file.read(len(archives.MAGIC)) == archives.MAGIC
    file.seek(0)
    if not is_archive:
        yield from _array(_read_single_value(file, source, limits.value), "samples", source)
        return
    samples = archives.contents(file, source, _is_sample, limits.value, limits.unpacked)
    first = next(samples, None)
    if first is None:
        raise InvalidLine(source, 1, "is an archive without `samples/`; finish the evaluation first")
    yield from chain([first], samples)


def _is_sample(name: str) -> bool:
    return name.startswith("samples/") and name.endswith(".json")


def _flashrag_samples(file: IO[bytes], source: str, limits: LogLimits) -> Iterator[Any]:
    yield from _array(_read_single_value(file, source, limits.value), None, source)


def _lm_eval_samples(file: IO[bytes], _: str, limits: LogLimits) -> Iterator[bytes | Defect]:
    for _number, raw in lines.number_lines(file, limits.line):
        yield lines.make_too_long_defect(limits.line) if lines.is_too_long(raw, limits.line) else raw


def _read_single_value(file: IO[bytes], source: str, most: int) -> Any:
    content = file.read(most + 1)
    if len(content) > most:
        raise InvalidLine(source, 1, f"has more than {most} bytes in one JSON value; split it")
    try:
        return _decode(content)
    except ValueError as error:
        raise InvalidLine(source, 1, f"is truncated or not JSON ({error})") from error


def _array(value: Any, field: str | None, source: str) -> Iterator[Any]:
    found = value.get(field) if field and isinstance(value, dict) else value
    if not isinstance(found, list):
        raise InvalidLine(source, 1, f"has no list of samples{f' under `{field}`' if field else ''}")
    yield from found


def _inspect(sample: Fields) -> list[Fields]:
    output = sample["output"]
    if not output["choices"]:
        reason = (sample.get("error") or {}).get("message") or "its model gave none"
        raise Defect(f"has no answer: {reason[:MAX_MESSAGE_LENGTH]}")
    content = output["choices"][0]["message"]["content"]
    if isinstance(content, list):
        content = "".join(each["text"] for each in content if each.get("type") == "text")
    usage = output.get("usage") or {}
    return [_drop_nulls({
        "id": sample["id"], "repeat": sample.get("epoch", 1) - 1, "text": content, "seconds": sample.get("total_time"),
        "prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens"),
    })]  # fmt: skip


def _flashrag(sample: Fields) -> list[Fields]:
    """Read a line of FlashRAG; it has `raw_pred` if a function of the user has made `pred` of it."""
    output = sample["output"]
    text, answer = output.get("raw_pred", output["pred"]), output["pred"] if "raw_pred" in output else None
    return [_drop_nulls({"id": sample.get("id"), "question": sample.get("question"), "text": text, "answer": answer})]


class _LmEval:
    """Reads lm-evaluation-harness: a document has a line per filter, so only the first filter's lines are read."""

    def __init__(self) -> None:
        self._filter: str | None = None

    def __call__(self, sample: Fields) -> list[Fields]:
        chosen = sample.get("filter") or ""
        self._filter = chosen if self._filter is None else self._filter
        if chosen != self._filter:
            return []
        drawn = sample["resps"][0]
        texts = drawn if isinstance(drawn, list) else [drawn]
        if not all(isinstance(each, str) for each in texts):
            raise Defect(
                "is of a task that compares likelihoods, so it has no generated text; import a generative task"
            )
        return [{"index": sample["doc_id"], "repeat": repeat, "text": each} for repeat, each in enumerate(texts)]


def _drop_nulls(found: Fields) -> Fields:
    return {name: value for name, value in found.items() if value is not None}


_SAMPLES: Mapping[Layout, Callable[[IO[bytes], str, LogLimits], Iterator[Any]]] = {
    Layout.INSPECT: _inspect_samples, Layout.LM_EVAL: _lm_eval_samples, Layout.FLASHRAG: _flashrag_samples,
}  # fmt: skip
_ANSWERS: Mapping[Layout, Callable[[], Answers]] = {
    Layout.INSPECT: lambda: _inspect, Layout.LM_EVAL: _LmEval, Layout.FLASHRAG: lambda: _flashrag,
}  # fmt: skip
