"""Held-out facts and templates of one upload."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InvalidLine, NotFound
from shared.ingest import graph_paths
from shared.ingest.facts import ParsedQuestions, QuestionReader
from shared.ingest.lines import Row
from shared.questions.items import QuestionTemplates
from shared.storage import graphs

FACT = {"subject": "a", "relation": "met", "object": "b"}
TEMPLATE = {"relation": "met", "object_question": "Whom met {subject}?", "subject_question": "Who met {object}?"}


def read(*lines: dict[str, Any], timed: bool = False) -> ParsedQuestions:
    rows: Sequence[Row] = [("upload", number, json.dumps(line)) for number, line in enumerate(lines, start=1)]
    return QuestionReader(frozenset(["met", "saw"]), timed).read(rows, "upload", 100)


def test_templates_stand_among_facts() -> None:
    found = read(FACT, TEMPLATE, {**TEMPLATE, "relation": "saw"}, FACT)
    template = QuestionTemplates("Whom met {subject}?", "Who met {object}?")
    assert found.templates == {"met": template, "saw": template}
    assert (list(graphs.format_tsv(found.facts.upload)), found.facts.repeated) == (["a\tmet\tb\n"], 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**TEMPLATE, "relation": "likes"}, "the graph has no relation 'likes'"),
        ({**TEMPLATE, "object_question": "Whom?"}, "`object_question` lacks the slot {subject}"),
        ({**TEMPLATE, "subject_question": "Who met {object} on {time}?"}, "`subject_question` has the slot {time}"),
        ({**TEMPLATE, "subject_question": " "}, "has no subject_question; write relation, question for the object"),
        ({"relation": "met", "object_question": "{subject}?"}, "has no subject_question"),
        ({"relation": "met", "phrase": "has met"}, "mathrag graph create --phrases FILE"),
        ({"subject": "a"}, "has no relation"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read(FACT, line)
    assert refused.value.line == 2
    assert said in str(refused.value)


def test_a_second_template_of_a_relation_is_refused() -> None:
    with pytest.raises(InvalidLine, match="line 3: repeats the relation 'met'"):
        read(FACT, TEMPLATE, TEMPLATE)


def test_templates_of_a_file_are_three_columns(tmp_path: Path) -> None:
    path = tmp_path / "templates.tsv"
    path.write_text("\t".join(TEMPLATE.values()) + "\nmet\tWhom?\n")
    good, (source, number, bad) = graph_paths.template_lines(path)
    assert good == ("templates.tsv", 1, TEMPLATE)
    assert (source, number, str(bad)[:14]) == ("templates.tsv", 2, "has 2 columns;")
    with pytest.raises(NotFound):
        list(graph_paths.template_lines(tmp_path / "none.tsv"))
