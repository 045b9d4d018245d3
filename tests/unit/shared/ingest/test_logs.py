"""Logs that other programs wrote."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mathrag.errors import InvalidLine
from mathrag.reading import answers, lines
from mathrag.reading.answers import Layout, LogLimits, make_mapping
from mathrag.reading.lines import Defect, Empty
from shared.ingest.answers import AnswerReader, ItemIndex
from tests.real_logs.write_logs import FAILING, ITEMS, THOUGHT

# Logs of other programs.

LOGS = Path(__file__).parent / "logs"
INSPECT = {
    "id": "q1", "epoch": 2, "total_time": 1.5,
    "output": {"choices": [{"message": {"content": "It is 4."}}], "usage": {"input_tokens": 9, "output_tokens": 3}},
}  # fmt: skip
ANSWER = {"id": "q1", "repeat": 1, "text": "It is 4.", "seconds": 1.5, "prompt_tokens": 9, "completion_tokens": 3}


def contents(path: Path, layout: Layout, limits: LogLimits = answers.LIMITS) -> list[Any]:
    with path.open("rb") as file:
        return [content for _, _, content in answers.read_log(file, path.name, layout, limits)]


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"samples/{name}.json", content)
    return path


def read_real(name: str, layout: Layout) -> list[Any]:
    return contents(LOGS / name, layout)


@pytest.mark.parametrize(("name", "epochs"), [("inspect_ai-0.3.285.json", 1), ("inspect_ai-0.3.285.eval", 2)])
def test_logs_that_inspect_wrote_are_read(name: str, epochs: int) -> None:
    found = {(each["id"], each["repeat"]): each for each in read_real(name, Layout.INSPECT)}
    assert set(found) == {(id_, repeat) for id_ in ("q0", "q1") for repeat in range(epochs)}
    assert {each["text"] for each in found.values()} >= {"The sum is \\boxed{0}.", "It is \\boxed{2}."}
    for each in found.values():
        assert (each["prompt_tokens"], each["completion_tokens"]) == (12, 9)
        assert 0 < each["seconds"] < 60


def test_samples_that_lm_eval_wrote_are_read() -> None:
    expected = [
        {"index": n, "question": f"What is {n + 1} + {n + 1}?", "repeat": repeat, "text": "lol"}
        for n in range(3)
        for repeat in range(2)
    ]
    assert read_real("lm_eval-0.4.13.jsonl", Layout.LM_EVAL) == expected


def test_a_dataset_that_flashrag_wrote_is_read() -> None:
    first, second = read_real("flashrag-0.1.2.json", Layout.FLASHRAG)
    assert first == {
        "id": "test_0", "question": "What is 0 + 0?", "text": "Twice nothing is \\boxed{0}.", "answer": "0",
        "score": 1.0,
    }  # fmt: skip
    assert (second["id"], second["answer"]) == ("test_1", "3")


def test_a_sample_that_ended_with_an_error_holds_no_answer_and_says_why(tmp_path: Path) -> None:
    failed = {**INSPECT, "output": {"model": "m", "choices": [], "completion": ""}, "error": {"message": "away " * 90}}
    log = written(tmp_path / "log.json", {"version": 2, "samples": [failed, INSPECT]})
    unanswered, answer = contents(log, Layout.INSPECT)
    assert unanswered == {"id": "q1", "repeat": 1, "error": {"message": "away " * 90}}
    assert answer == ANSWER


def test_a_task_that_compares_likelihoods_has_no_text(tmp_path: Path) -> None:
    log = tmp_path / "samples.jsonl"
    log.write_text(json.dumps({"doc_id": 0, "filter": "none", "resps": [[["-0.26", "False"]], [["-0.81", "False"]]]}))
    (defect,) = contents(log, Layout.LM_EVAL)
    assert "compares likelihoods" in str(defect)


def test_what_a_database_cannot_store_is_a_defect_of_its_sample_alone(tmp_path: Path) -> None:
    broken = {**INSPECT, "scores": {"x": float("nan")}, "output": {"choices": [{"message": {"content": "\ud800"}}]}}
    log = written(tmp_path / "log.json", {"samples": [broken, INSPECT]})
    defect, answer = contents(log, Layout.INSPECT)
    assert isinstance(defect, Defect)
    assert answer == ANSWER


def test_a_log_of_inspect_is_read_in_both_of_its_forms(tmp_path: Path) -> None:
    parts = {**INSPECT, "output": {"choices": [{"message": {"content": [{"type": "text", "text": "4"}]}}]}}
    log = written(tmp_path / "log.json", {"version": 2, "samples": [INSPECT, parts]})
    assert contents(log, Layout.INSPECT) == [ANSWER, {"id": "q1", "repeat": 1, "text": "4", "seconds": 1.5}]
    log = archive(tmp_path / "log.eval", one=json.dumps(INSPECT).encode())
    assert contents(log, Layout.INSPECT) == [ANSWER]


def test_of_several_filters_of_lm_eval_the_first_ones_lines_count(tmp_path: Path) -> None:
    rows = [{"doc_id": n, "filter": name, "resps": [[f"text {n}"]]} for name in ("strict", "loose") for n in range(2)]
    log = tmp_path / "samples.jsonl"
    for _ in range(2):
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert contents(log, Layout.LM_EVAL) == [{"index": n, "repeat": 0, "text": f"text {n}"} for n in range(2)]


def test_flashrags_output_is_read(tmp_path: Path) -> None:
    sample = {"id": "test_0", "question": "What?", "golden_answers": ["4"], "output": {"pred": "4", "prompt": "..."}}
    log = written(tmp_path / "intermediate_data.json", [sample])
    assert contents(log, Layout.FLASHRAG) == [{"id": "test_0", "question": "What?", "text": "4"}]


@pytest.mark.parametrize("layout", [Layout.INSPECT, Layout.FLASHRAG])
def test_a_log_that_is_cut_off_is_refused(tmp_path: Path, layout: Layout) -> None:
    log = tmp_path / "log.json"
    log.write_text('{"samples": [{"id": "q1", "out')
    with pytest.raises(InvalidLine, match="truncated"):
        contents(log, layout)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    log = archive(tmp_path / "log.eval", one=json.dumps(INSPECT).encode())
    log.write_bytes(log.read_bytes()[:-30])
    with pytest.raises(InvalidLine, match="truncated"):
        contents(log, Layout.INSPECT)


@pytest.mark.parametrize("limits", [LogLimits(sample=1 << 20), LogLimits(unpacked=1 << 20)])
def test_an_archive_that_unfolds_without_end_is_refused(tmp_path: Path, limits: LogLimits) -> None:
    log = archive(tmp_path / "log.eval", one=b"[" + b" " * (3 << 20))
    assert log.stat().st_size < 10_000
    with pytest.raises(InvalidLine, match="unpacks to 3145729 bytes"):
        contents(log, Layout.INSPECT, limits)


def test_an_archive_that_holds_more_than_it_says_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("samples/one.json", b"[" + b" " * (3 << 20))
        made.filelist[0].file_size = 10
    with pytest.raises(InvalidLine, match="truncated or damaged"):
        contents(log, Layout.INSPECT)


@pytest.mark.parametrize("sample", [{}, {"output": {"choices": []}}, {"id": "q1", "output": 3}])
def test_a_sample_of_another_form_is_named(tmp_path: Path, sample: Any) -> None:
    log = written(tmp_path / "log.json", {"samples": [sample, INSPECT]})
    wrong, right = contents(log, Layout.INSPECT)
    assert isinstance(wrong, Defect)
    assert right == ANSWER


def test_what_inspect_took_for_the_answer_and_its_verdict_are_read(tmp_path: Path) -> None:
    scores = [
        ({"none": {"value": float("nan")}, "match": {"value": "C", "answer": "4"}}, {"answer": "4", "score": 1.0}),
        ({"match": {"value": "I", "answer": "5"}}, {"score": 0.0}),
        ({"choice": {"value": "N", "answer": None}}, {"score": 0.0}),
        ({"includes": {"value": "C", "answer": "It is 4."}}, {"score": 1.0}),
        ({"f1": {"value": 0.4}}, {"score": 0.4}),
        ({"model": {"value": "unclear"}}, {}),
        ({}, {}),
    ]
    log = written(tmp_path / "log.json", {"samples": [{**INSPECT, "scores": each} for each, _ in scores]})
    assert contents(log, Layout.INSPECT) == [{**ANSWER, **expected} for _, expected in scores]


def test_what_inspect_took_out_of_a_thought_or_wrote_in_small_letters_is_no_answer(tmp_path: Path) -> None:
    texts = {"<think>It may be 14, but": "14", "So it is B.": "so it is b"}
    samples = [
        {
            **INSPECT, "output": {"choices": [{"message": {"content": text}}]},
            "scores": {"match": {"value": "C", "answer": answer}},
        }
        for text, answer in texts.items()
    ]  # fmt: skip
    found = contents(written(tmp_path / "log.json", {"samples": samples}), Layout.INSPECT)
    assert [(each.get("answer"), each["score"]) for each in found] == [(None, 1.0), (None, 1.0)]


def test_a_log_of_inspect_without_ids_names_its_samples_by_question_and_place(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
    samples = [{**INSPECT, "id": 1, "input": "What is 1 + 1?"}, {**INSPECT, "id": 2, "input": chat}]
    found = contents(written(tmp_path / "log.json", {"samples": samples}), Layout.INSPECT)
    assert [(each["id"], each["index"], each["question"]) for each in found] == [
        (1, 0, "What is 1 + 1?"),
        (2, 1, "2+2?"),
    ]


@pytest.mark.parametrize(
    ("filtered", "answers"),
    [
        (["18"], ["18"]),
        (["[invalid]"], [None]),
        (["So it is 18."], [None]),
        ([["18", "18"]], ["18", "18"]),
        (["19"], [None]),
        (["18", "[invalid]"], ["18", None]),
        ([], [None]),
    ],
)
def test_what_a_filter_of_lm_eval_found_is_the_answer(
    tmp_path: Path, filtered: list[Any], answers: list[str | None]
) -> None:
    row = {"doc_id": 3, "filter": "strict", "resps": [["So it is 18."] * len(answers)], "filtered_resps": filtered}
    log = tmp_path / "samples.jsonl"
    log.write_text(json.dumps({**row, "exact_match": 1.0, "doc": {"id": "a", "question": "How many?"}}))
    found = contents(log, Layout.LM_EVAL)
    assert [each.get("answer") for each in found] == answers
    assert [each.get("score") for each in found] == ([1.0] if len(answers) == 1 else [None, None])
    assert {(each["id"], each["question"], each["index"]) for each in found} == {("a", "How many?", 3)}


def test_a_log_of_lm_eval_of_before_its_filters_had_names_says_everything_twice(tmp_path: Path) -> None:
    rows = [{"doc_id": n, "resps": [[f"text {n}"]]} for n in range(2)]
    log = tmp_path / "samples.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in (*rows, *rows)))
    assert [each["text"] for each in contents(log, Layout.LM_EVAL)] == ["text 0", "text 1"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"choices": [{"message": {"content": "4"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
            [{"repeat": 0, "text": "4", "prompt_tokens": 9, "completion_tokens": 3}],
        ),
        (
            {"choices": [{"message": {"content": "4"}}, {"message": {"content": "5"}}], "usage": {"prompt_tokens": 9}},
            [{"repeat": 0, "text": "4"}, {"repeat": 1, "text": "5"}],
        ),
        ({"choices": [{"message": {"content": None, "refusal": "I cannot."}}]}, [{"repeat": 0, "text": ""}]),
        ({"choices": [{"text": "4"}]}, [{"repeat": 0, "text": "4"}]),
        (
            {
                "output": [
                    {"type": "reasoning"},
                    {"type": "message", "content": [{"type": "output_text", "text": "4"}]},
                ],
                "usage": {"input_tokens": 9, "output_tokens": 3},
            },
            [{"repeat": 0, "text": "4", "prompt_tokens": 9, "completion_tokens": 3}],
        ),
    ],
)
def test_the_output_of_openais_batches_is_read(tmp_path: Path, body: Any, expected: list[dict[str, Any]]) -> None:
    log = tmp_path / "output.jsonl"
    log.write_text(json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None}))
    assert contents(log, Layout.OPENAI_BATCH) == [{"id": "a", **each} for each in expected]


@pytest.mark.parametrize(
    ("response", "error", "said"),
    [
        ({"status_code": 500, "body": {"error": {"message": "overloaded"}}}, None, {"message": "overloaded"}),
        ({"status_code": 429, "body": {}}, None, "status 429"),
        (None, {"code": "batch_expired", "message": "late"}, {"code": "batch_expired", "message": "late"}),
    ],
)
def test_a_failed_request_of_a_batch_holds_no_answer(tmp_path: Path, response: Any, error: Any, said: Any) -> None:
    log = tmp_path / "errors.jsonl"
    log.write_text(json.dumps({"custom_id": "a", "response": response, "error": error}))
    assert contents(log, Layout.OPENAI_BATCH) == [{"id": "a", "error": said}]


# Logs that other programs wrote are read: the stored ones, or those that `make real-logs` has just let them write.

FOLDER = Path(os.environ.get("FRESH_LOGS", Path(__file__).parent / "logs"))

ALL = {item.id for item in ITEMS}
MATCHED = {"eggs", "pens", "days", "steps", "seats"}
STRICT = {"eggs", "steps", "seats"}


@pytest.mark.parametrize(
    ("log", "layout", "columns", "answered", "repeats", "right"),
    [
        ("inspect_ai-*-ids.eval", Layout.INSPECT, (), ALL - {FAILING}, 1, MATCHED - {FAILING}),
        ("inspect_ai-*-no-ids.eval", Layout.INSPECT, (), ALL, 1, MATCHED),
        ("inspect_ai-*-shuffled.eval", Layout.INSPECT, (), ALL, 1, MATCHED),
        ("inspect_ai-*-epochs.eval", Layout.INSPECT, (), {"eggs", "pens", "coins", "seats"}, 2, None),
        ("inspect_ai-*-choice.eval", Layout.INSPECT, (), ALL, 1, {"seats"}),
        ("inspect_ai-*-model-graded.eval", Layout.INSPECT, (), {"eggs", "miles", "cups", "days", "seats"}, 1, None),
        ("inspect_ai-*-answer.json", Layout.INSPECT, (), {"coins", "seats"}, 1, set()),
        ("inspect_ai-*-unscored.eval", Layout.INSPECT, (), ALL, 1, None),
        ("inspect_ai-*-stopped.eval", Layout.INSPECT, (), {"eggs"}, 1, {"eggs"}),
        ("inspect_ai-*-scorer-failed.eval", Layout.INSPECT, (), {"eggs", FAILING}, 1, None),
        ("lm_eval-*-gsm8k.jsonl", Layout.LM_EVAL, (), ALL, 1, STRICT),
        ("lm_eval-*-repeats.jsonl", Layout.LM_EVAL, (), ALL, 2, None),
        ("lm_eval-*-predictions.jsonl", Layout.LM_EVAL, (), ALL, 1, None),
        ("ragas-*-answered.csv", None, (), ALL, 1, None),
        ("ragas-*-answered.jsonl", Layout.RAGAS, (), ALL, 1, None),
        ("ragas-*-result.csv", None, (), ALL, 1, set()),
        ("ragas-*-result.jsonl", None, (), ALL, 1, set()),
        ("ragas-*-result.json", Layout.RAGAS, (), ALL, 1, set()),
        ("ragas-*-result-records.json", Layout.RAGAS, (), ALL, 1, set()),
        ("ragas-*-experiment.csv", None, ("text=response",), ALL, 1, None),
        ("ragas-*-experiment.jsonl", None, ("text=response",), ALL, 1, None),
        ("deepeval-*-cases.csv", None, (), ALL, 1, None),
        ("deepeval-*-cases.jsonl", None, (), ALL, 1, None),
        ("deepeval-*-cases.json", Layout.DEEPEVAL, (), ALL, 1, None),
        ("deepeval-*-run.json", Layout.DEEPEVAL, (), ALL, 1, set()),
        ("deepeval-*-run-without-names.json", Layout.DEEPEVAL, (), ALL, 1, set()),
    ],
)
def test_a_real_log_gives_what_the_model_said(
    log: str, layout: Layout | None, columns: tuple[str, ...], answered: set[str], repeats: int, right: set[str] | None
) -> None:
    # The version has no hyphen: a log `ids` is not the log `no-ids`.
    paths = [each for each in FOLDER.glob(log) if each.name.count("-") == log.count("-")]
    if not paths:
        pytest.skip(f"logs of {log.partition('-')[0]}: none was written")
    mapping = make_mapping(columns)
    reader = AnswerReader(ItemIndex((item.id, item.question) for item in ITEMS), mapping)
    found = {}
    for _, number, row in answers.read_answers(paths[0], mapping, layout=layout):
        try:
            answer = reader(lines.fields(row), number)
        except Empty:
            continue
        found[ITEMS[answer.ordinal].id, answer.repeat] = answer.given
    said = {
        (item.id, repeat): item.replies[repeat % len(item.replies)] or ""
        for item in ITEMS
        if item.id in answered
        for repeat in range(repeats)
    }
    # inspect_ai takes a thought that ended out of the text.
    gone = THOUGHT if layout is Layout.INSPECT else ""
    assert {key: given.text for key, given in found.items()} == {
        key: text.removeprefix(gone) for key, text in said.items()
    }
    if right is not None:
        assert {id_ for (id_, _), given in found.items() if given.score == 1} == right


@pytest.mark.parametrize(
    ("log", "layout"),
    [
        ("ragas-*-answered.csv", None),
        ("ragas-*-answered.jsonl", Layout.RAGAS),
        ("ragas-*-result.csv", None),
        ("ragas-*-result.json", Layout.RAGAS),
        ("deepeval-*-cases.csv", None),
        ("deepeval-*-cases.jsonl", None),
        ("deepeval-*-cases.json", None),
        ("deepeval-*-cases.json", Layout.DEEPEVAL),
        ("deepeval-*-run.json", Layout.DEEPEVAL),
    ],
)
def test_a_real_log_of_ragas_or_deepeval_gives_the_documents_of_each_answer(log: str, layout: Layout | None) -> None:
    path = next(each for each in FOLDER.glob(log) if each.name.count("-") == log.count("-"))
    mapping = make_mapping(())
    reader = AnswerReader(ItemIndex((item.id, item.question) for item in ITEMS), mapping)
    found = [reader(lines.fields(row), number) for _, number, row in answers.read_answers(path, mapping, layout=layout)]
    assert len(found) == len(ITEMS)
    for each in found:
        assert [document.text for document in each.documents] == ["A", "B's"]
        assert each.given.contexts == tuple(document.hash for document in each.documents)
