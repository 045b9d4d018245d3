"""What went wrong before the prompt was built, in a report's line."""

import pytest

from shared.pages.lines import describe_decision, describe_scoring_problems
from shared.samples import Decision

NONE = {"parse_failures": 0, "unscored": 0, "duplicates_dropped": 0, "decisions": {}}


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (NONE, ""),
        ({**NONE, "decisions": {"crag": {"kept": 5}}}, ""),
        ({**NONE, "duplicates_dropped": 2}, "2 near-duplicates dropped"),
        (
            {**NONE, "duplicates_dropped": 2, "decisions": {"duplicates": {"kept": 3}}},
            "2 near-duplicates dropped, 3 documents in prompts that almost repeat the question",
        ),
    ],
)
def test_documents_that_almost_repeat_the_question_are_counted_beside_those_dropped(
    report: dict[str, object], said: str
) -> None:
    assert describe_scoring_problems(report) == said


def test_a_sample_names_the_document_that_almost_repeats_its_question() -> None:
    kept = Decision(stage="duplicates", action="kept", detail={"document": "ab" * 32, "share": 14 / 15})
    said = describe_decision(kept, {"ab" * 32: "doc-7"})
    assert said.startswith("Document doc-7 stood in the prompt although it almost repeats the question (0.933 of the")
