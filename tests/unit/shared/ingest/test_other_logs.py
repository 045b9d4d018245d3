"""Logs of other programs."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InvalidLine
from shared.ingest import other_logs
from shared.ingest.lines import Defect
from shared.ingest.other_logs import Layout

INSPECT = {
    "id": "q1", "epoch": 2, "total_time": 1.5,
    "output": {"choices": [{"message": {"content": "It is 4."}}], "usage": {"input_tokens": 9, "output_tokens": 3}},
}  # fmt: skip
ANSWER = {"id": "q1", "repeat": 1, "text": "It is 4.", "seconds": 1.5, "prompt_tokens": 9, "completion_tokens": 3}


def contents(path: Path, layout: Layout) -> list[Any]:
    """What was read, without places."""
    return [content for _, _, content in other_logs.read(path, layout)]


def written(path: Path, value: Any) -> Path:
    """As JSON."""
    path.write_text(json.dumps(value))
    return path


def archive(path: Path, **members: bytes) -> Path:
    """An archive of samples."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"samples/{name}.json", content)
    return path


def test_a_log_of_inspect_is_read_in_both_of_its_forms(tmp_path: Path) -> None:
    """Epochs count from 1; a content of parts is their texts."""
    parts = {**INSPECT, "output": {"choices": [{"message": {"content": [{"type": "text", "text": "4"}]}}]}}
    log = written(tmp_path / "log.json", {"version": 2, "samples": [INSPECT, parts]})
    assert contents(log, Layout.INSPECT) == [ANSWER, {"id": "q1", "repeat": 1, "text": "4", "seconds": 1.5}]
    log = archive(tmp_path / "log.eval", one=json.dumps(INSPECT).encode())
    assert contents(log, Layout.INSPECT) == [ANSWER]


def test_of_several_filters_of_lm_eval_the_first_ones_lines_count(tmp_path: Path) -> None:
    """Each document once."""
    rows = [{"doc_id": n, "filter": name, "resps": [[f"text {n}"]]} for name in ("strict", "loose") for n in range(2)]
    log = tmp_path / "samples.jsonl"
    for _ in range(2):
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert contents(log, Layout.LM_EVAL) == [{"index": n, "text": f"text {n}"} for n in range(2)]


def test_flashrags_output_is_read(tmp_path: Path) -> None:
    """What it predicted."""
    sample = {"id": "test_0", "question": "What?", "golden_answers": ["4"], "output": {"pred": "4", "prompt": "..."}}
    log = written(tmp_path / "intermediate_data.json", [sample])
    assert contents(log, Layout.FLASHRAG) == [{"id": "test_0", "question": "What?", "text": "4"}]


@pytest.mark.parametrize("layout", [Layout.INSPECT, Layout.FLASHRAG])
def test_a_log_that_is_cut_off_is_refused(tmp_path: Path, layout: Layout) -> None:
    """Whole, before a line of it is sent."""
    log = tmp_path / "log.json"
    log.write_text('{"samples": [{"id": "q1", "out')
    with pytest.raises(InvalidLine, match="cut off"):
        contents(log, layout)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """Its directory stands at its end."""
    log = archive(tmp_path / "log.eval", one=json.dumps(INSPECT).encode())
    log.write_bytes(log.read_bytes()[:-30])
    with pytest.raises(InvalidLine, match="cut off"):
        contents(log, Layout.INSPECT)


def test_an_archive_that_unfolds_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it unfolds to."""
    monkeypatch.setattr(other_logs, "MOST_BYTES", 1 << 20)
    log = archive(tmp_path / "log.eval", one=b"[" + b" " * (3 << 20))
    assert log.stat().st_size < 10_000
    with pytest.raises(InvalidLine, match="unfolds to more"):
        contents(log, Layout.INSPECT)


@pytest.mark.parametrize("sample", [{}, {"id": "q1", "output": {"choices": []}}, {"id": "q1", "output": 3}])
def test_a_sample_of_another_form_is_named(tmp_path: Path, sample: Any) -> None:
    """And the others are read."""
    log = written(tmp_path / "log.json", {"samples": [sample, INSPECT]})
    wrong, right = contents(log, Layout.INSPECT)
    assert isinstance(wrong, Defect)
    assert right == ANSWER
