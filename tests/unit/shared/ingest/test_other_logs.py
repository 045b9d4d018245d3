"""Logs of other programs."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InvalidLine
from shared.ingest import other_logs
from shared.ingest.lines import Defect
from shared.ingest.other_logs import Layout, LogLimits

LOGS = Path(__file__).parent / "logs"
INSPECT = {
    "id": "q1", "epoch": 2, "total_time": 1.5,
    "output": {"choices": [{"message": {"content": "It is 4."}}], "usage": {"input_tokens": 9, "output_tokens": 3}},
}  # fmt: skip
ANSWER = {"id": "q1", "repeat": 1, "text": "It is 4.", "seconds": 1.5, "prompt_tokens": 9, "completion_tokens": 3}


def contents(path: Path, layout: Layout, limits: LogLimits = other_logs.LIMITS) -> list[Any]:
    """What was read, without places."""
    with path.open("rb") as file:
        return [content for _, _, content in other_logs.read(file, path.name, layout, limits)]


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


def read_real(name: str, layout: Layout) -> list[Any]:
    """What stands in a log that the program itself wrote; its version is in the file's name."""
    return contents(LOGS / name, layout)


@pytest.mark.parametrize(("name", "epochs"), [("inspect_ai-0.3.285.json", 1), ("inspect_ai-0.3.285.eval", 2)])
def test_logs_that_inspect_wrote_are_read(name: str, epochs: int) -> None:
    """Archives are compressed by Zstandard, scores are NaN, and reasoning is no part of an answer."""
    found = {(each["id"], each["repeat"]): each for each in read_real(name, Layout.INSPECT)}
    assert set(found) == {(id_, repeat) for id_ in ("q0", "q1") for repeat in range(epochs)}
    assert {each["text"] for each in found.values()} >= {"The sum is \\boxed{0}.", "It is \\boxed{2}."}
    for each in found.values():
        assert (each["prompt_tokens"], each["completion_tokens"]) == (12, 9)
        assert 0 < each["seconds"] < 60


def test_samples_that_lm_eval_wrote_are_read() -> None:
    """Two draws to a document are repeats of it, and two filters of them are not four."""
    expected = [{"index": n, "repeat": repeat, "text": "lol"} for n in range(3) for repeat in range(2)]
    assert read_real("lm_eval-0.4.13.jsonl", Layout.LM_EVAL) == expected


def test_a_dataset_that_flashrag_wrote_is_read() -> None:
    """Where a prediction was made of what the model wrote, both are there."""
    first, second = read_real("flashrag-0.1.2.json", Layout.FLASHRAG)
    assert first == {
        "id": "test_0", "question": "What is 0 + 0?", "text": "Twice nothing is \\boxed{0}.", "answer": "0"
    }  # fmt: skip
    assert (second["id"], second["answer"]) == ("test_1", "3")


def test_a_sample_that_ended_with_an_error_holds_no_answer_and_says_why(tmp_path: Path) -> None:
    """As inspect_ai writes it where the model could not be reached."""
    failed = {**INSPECT, "output": {"model": "m", "choices": [], "completion": ""}, "error": {"message": "away " * 90}}
    log = written(tmp_path / "log.json", {"version": 2, "samples": [failed, INSPECT]})
    defect, answer = contents(log, Layout.INSPECT)
    assert str(defect).startswith("has no answer: away away")
    assert len(str(defect)) < 300
    assert answer == ANSWER


def test_a_task_that_compares_likelihoods_has_no_text(tmp_path: Path) -> None:
    """As lm_eval writes one with choices."""
    log = tmp_path / "samples.jsonl"
    log.write_text(json.dumps({"doc_id": 0, "filter": "none", "resps": [[["-0.26", "False"]], [["-0.81", "False"]]]}))
    (defect,) = contents(log, Layout.LM_EVAL)
    assert "compares likelihoods" in str(defect)


def test_what_a_database_cannot_store_is_a_defect_of_its_sample_alone(tmp_path: Path) -> None:
    """A lone surrogate beside a NaN, which Python writes and reads."""
    broken = {**INSPECT, "scores": {"x": float("nan")}, "output": {"choices": [{"message": {"content": "\ud800"}}]}}
    log = written(tmp_path / "log.json", {"samples": [broken, INSPECT]})
    defect, answer = contents(log, Layout.INSPECT)
    assert isinstance(defect, Defect)
    assert answer == ANSWER


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
        assert contents(log, Layout.LM_EVAL) == [{"index": n, "repeat": 0, "text": f"text {n}"} for n in range(2)]


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
    with pytest.raises(InvalidLine, match="truncated"):
        contents(log, layout)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """Its directory stands at its end."""
    log = archive(tmp_path / "log.eval", one=json.dumps(INSPECT).encode())
    log.write_bytes(log.read_bytes()[:-30])
    with pytest.raises(InvalidLine, match="truncated"):
        contents(log, Layout.INSPECT)


@pytest.mark.parametrize("limits", [LogLimits(value=1 << 20), LogLimits(unpacked=1 << 20)])
def test_an_archive_that_unfolds_without_end_is_refused(tmp_path: Path, limits: LogLimits) -> None:
    """By what it unfolds to."""
    log = archive(tmp_path / "log.eval", one=b"[" + b" " * (3 << 20))
    assert log.stat().st_size < 10_000
    with pytest.raises(InvalidLine, match="unpacks to 3145729 bytes"):
        contents(log, Layout.INSPECT, limits)


def test_an_archive_that_holds_more_than_it_says_is_refused(tmp_path: Path) -> None:
    """And is not unfolded any further."""
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("samples/one.json", b"[" + b" " * (3 << 20))
        made.filelist[0].file_size = 10
    with pytest.raises(InvalidLine, match="truncated or damaged"):
        contents(log, Layout.INSPECT)


@pytest.mark.parametrize("sample", [{}, {"id": "q1", "output": {"choices": []}}, {"id": "q1", "output": 3}])
def test_a_sample_of_another_form_is_named(tmp_path: Path, sample: Any) -> None:
    """And the others are read."""
    log = written(tmp_path / "log.json", {"samples": [sample, INSPECT]})
    wrong, right = contents(log, Layout.INSPECT)
    assert isinstance(wrong, Defect)
    assert right == ANSWER
