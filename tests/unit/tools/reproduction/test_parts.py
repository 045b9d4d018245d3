"""The parts of a graph's facts."""

from pathlib import Path

import pytest

from shared.calls import TLogic
from shared.errors import Invalid
from tools.reproduction import rule_setting
from tools.reproduction.rule_setting import Graph, Part

FACTS = "a\tmeet\tb\t2014-10-31\na\tmeet\tc\t2014-11-01\nb\tvisit\ta\t2014-11-02\n"
GRAPH = Graph(
    title="T",
    facts=Part(file="all.txt", before="2014-11-01"),
    training=Part(file="all.txt", since="2014-11-01", before="2014-11-02"),
    test=Part(file="all.txt", since="2014-11-02"),
    mining=TLogic(),
)


def test_a_day_belongs_to_one_part(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS)
    files = rule_setting.write(GRAPH, tmp_path, tmp_path / "parts")
    assert "".join(file.read_text() for file in files.values()) == FACTS
    assert [file.read_text().count("\n") for file in files.values()] == [1, 1, 1]


def test_a_part_without_facts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS.replace("2014", "2015"))
    with pytest.raises(Invalid, match=r"all\.txt has no fact from the first to 2014-11-01"):
        rule_setting.write(GRAPH, tmp_path, tmp_path / "parts")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"all\.txt") as refused:
        rule_setting.sources(GRAPH, tmp_path)
    assert "docs/reference/rule-reproduction.md" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("On 2014-11-01, a meet whom or what?", 2),
        ("On 2014-11-01, Who or what meet c?", 2),
        ("On 2014-11-01, Who or what meet a?", 3),
        ("On 2014-11-05, a meet whom or what?", 3),
    ],
)
def test_no_model_is_tuned_on_a_question_that_is_measured(tmp_path: Path, asked: str, left: int) -> None:
    (tmp_path / "all.txt").write_text(FACTS)
    gone = rule_setting.without_asked(tmp_path / "all.txt", {asked}, tmp_path / "kept.tsv")
    kept = (tmp_path / "kept.tsv").read_text().splitlines()
    assert (len(kept), gone) == (left, 3 - left)


def test_facts_without_times_are_asked_for_without_one(tmp_path: Path) -> None:
    (tmp_path / "all.tsv").write_text("a\tmeet\tb\nb\tmeet\ta\n")
    assert rule_setting.without_asked(tmp_path / "all.tsv", {"a meet whom or what?"}, tmp_path / "kept.tsv") == 1
