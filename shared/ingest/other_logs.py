"""Logs of other programs as lines of answers: inspect_ai, lm-evaluation-harness and FlashRAG."""

import zipfile
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import msgspec

from shared.errors import InvalidLine
from shared.ingest import lines
from shared.ingest.lines import Defect, Fields, Row

MOST_BYTES = 1 << 28
"""Of a log that is one JSON value, and of all that an archive unfolds to."""
ARCHIVE = b"PK\x03\x04"


class Layout(StrEnum):
    """Who wrote a log."""

    INSPECT = "inspect"
    LM_EVAL = "lm-eval"
    FLASHRAG = "flashrag"


def read(path: Path, layout: Layout, longest: int = lines.MAX_LINE_BYTES) -> Iterator[Row]:
    """Every sample of the log as the fields of an answer, under its number, from 1.

    Raises:
        InvalidLine: it is cut off, unfolds to more than `MOST_BYTES`, or is no such log.
    """
    answer = _ANSWERS[layout]()
    with path.open("rb") as file:
        for number, sample in enumerate(_SAMPLES[layout](file, path.name, longest), start=1):
            try:
                found = answer(lines.fields(sample))
            except Defect as defect:
                yield path.name, number, defect
                continue
            except (AttributeError, IndexError, KeyError, TypeError):
                yield path.name, number, Defect(f"is no sample of a log of {layout.value}; export it again")
                continue
            if found is not None:
                yield path.name, number, found


def _inspect_samples(file: IO[bytes], source: str, _: int) -> Iterator[Any]:
    if file.read(len(ARCHIVE)) == ARCHIVE:
        yield from _archived(file, source)
        return
    file.seek(0)
    yield from _array(_whole(file, source), "samples", source)


def _archived(file: IO[bytes], source: str) -> Iterator[bytes]:
    """Samples of an archive; what it really unfolds to is counted, whatever it says of itself."""
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(file) as archive:
            names = [each for each in archive.namelist() if each.startswith("samples/") and each.endswith(".json")]
            if not names:
                raise InvalidLine(source, 1, "is an archive without `samples/`; was the evaluation finished?")
            for name in names:
                with archive.open(name) as member:
                    content = member.read(left + 1)
                left -= len(content)
                if left < 0:
                    raise InvalidLine(source, 1, f"unfolds to more than {MOST_BYTES} bytes; split it")
                yield content
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise InvalidLine(source, 1, f"is cut off or damaged ({error}); copy it again") from error


def _flashrag_samples(file: IO[bytes], source: str, _: int) -> Iterator[Any]:
    yield from _array(_whole(file, source), None, source)


def _lm_eval_samples(file: IO[bytes], _: str, longest: int) -> Iterator[bytes | Defect]:
    for _number, raw in lines.numbered(file, longest):
        yield lines.too_long(longest) if lines.is_too_long(raw, longest) else raw


def _whole(file: IO[bytes], source: str) -> Any:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InvalidLine(source, 1, f"has more than {MOST_BYTES} bytes; split it")
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidLine(source, 1, f"is cut off or no JSON ({error})") from error


def _array(value: Any, field: str | None, source: str) -> Iterator[Any]:
    found = value.get(field) if field and isinstance(value, dict) else value
    if not isinstance(found, list):
        raise InvalidLine(source, 1, f"holds no list of samples{f' under `{field}`' if field else ''}")
    for each in found:
        yield each if isinstance(each, dict) else Defect(f"holds {lines.name(each)} in the place of a sample")


def _inspect(sample: Fields) -> Fields | None:
    output = sample["output"]
    content = output["choices"][0]["message"]["content"]
    if isinstance(content, list):
        content = "".join(each["text"] for each in content if each.get("type") == "text")
    usage = output.get("usage") or {}
    return _known({
        "id": sample["id"], "repeat": sample.get("epoch", 1) - 1, "text": content, "seconds": sample.get("total_time"),
        "prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens"),
    })  # fmt: skip


def _flashrag(sample: Fields) -> Fields | None:
    return _known({"id": sample.get("id"), "question": sample.get("question"), "text": sample["output"]["pred"]})


class _LmEval:
    """A document has a line for each filter; the first filter's lines hold every text once."""

    def __init__(self) -> None:
        self._filter: str | None = None

    def __call__(self, sample: Fields) -> Fields | None:
        chosen = sample.get("filter") or ""
        self._filter = chosen if self._filter is None else self._filter
        if chosen != self._filter:
            return None
        first = sample["resps"][0]
        return {"index": sample["doc_id"], "text": first[0] if isinstance(first, list) else first}


def _known(found: Fields) -> Fields:
    return {name: value for name, value in found.items() if value is not None}


_SAMPLES: Mapping[Layout, Callable[[IO[bytes], str, int], Iterator[Any]]] = {
    Layout.INSPECT: _inspect_samples, Layout.LM_EVAL: _lm_eval_samples, Layout.FLASHRAG: _flashrag_samples,
}  # fmt: skip
_ANSWERS: Mapping[Layout, Callable[[], Callable[[Fields], Fields | None]]] = {
    Layout.INSPECT: lambda: _inspect, Layout.LM_EVAL: _LmEval, Layout.FLASHRAG: lambda: _flashrag,
}  # fmt: skip
