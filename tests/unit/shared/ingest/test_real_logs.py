"""Logs that other programs wrote are read: the stored ones, or those that `make real-logs` has just let them write."""

import os
from pathlib import Path

import pytest

from shared.ingest import answers, lines
from shared.ingest.answers import AnswerReader, ItemIndex, Layout, make_mapping
from shared.ingest.lines import Empty
from tests.real_logs.write_logs import FAILING, ITEMS, THOUGHT

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
