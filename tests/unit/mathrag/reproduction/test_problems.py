"""The problems of a reproduction: found by name, drawn with every subject's share."""

import json
from pathlib import Path

import pytest

from mathrag.reproduction import problems
from shared.errors import Invalid, MathragError, NotFound
from shared.samples import DatasetItem
from shared.settings import REPOSITORY
from tests.unit.reproductions import problem, write

MATH = REPOSITORY.parent / "shared" / "data" / "math"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "train.jsonl", range(20))
    write(tmp_path / "test.jsonl", range(100, 110))
    return tmp_path


def choose(data: Path, count: int = 10) -> list[DatasetItem]:
    return problems.choose(problems.find(data, None, None)[1], count)


def test_both_files_are_found_by_their_usual_names(data: Path) -> None:
    assert problems.find(data, None, None) == (data / "train.jsonl", data / "test.jsonl")
    first, *_ = found = choose(data)
    assert (len(found), first.question, first.gold, first.subject) == (10, "What is 100 + 100?", "200", "Algebra")


def test_the_folders_of_the_original_archive_are_found_too(tmp_path: Path) -> None:
    for part, numbers in (("train", range(4)), ("test", range(100, 103))):
        for number in numbers:
            file = tmp_path / part / "algebra" / f"{number}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(problem(number)))
    assert problems.find(tmp_path, None, None)[0] == tmp_path / "train"
    assert len(choose(tmp_path, 3)) == 3


def test_a_file_that_is_named_goes_before_the_folders(data: Path) -> None:
    other = write(data / "other.jsonl", range(200, 203))
    assert problems.find(data, None, other) == (data / "train.jsonl", other)
    assert problems.find(None, other, data / "test.jsonl") == (other, data / "test.jsonl")


def test_a_part_has_every_subjects_share_and_is_the_same_again(data: Path) -> None:
    assert sorted(str(item.subject) for item in choose(data, 4)) == ["Algebra", "Algebra", "Geometry", "Geometry"]
    assert choose(data, 4) == choose(data, 4)


def test_questions_without_answers_cannot_be_graded(data: Path) -> None:
    (data / "test.jsonl").write_text('{"problem": "?", "answer": "1"}\n{"problem": "Why?"}\n')
    with pytest.raises(Invalid, match="1 of its 2 questions have no gold answer"):
        choose(data, 2)


def test_more_questions_than_there_are_is_refused_with_how_many_there_are(data: Path) -> None:
    with pytest.raises(Invalid, match="holds 10 questions") as refused:
        choose(data, 500)
    assert refused.value.hint == "--items 10"


def test_a_pointer_of_git_lfs_is_no_file(data: Path) -> None:
    (data / "test.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(MathragError, match=r"test.jsonl.*git lfs pull"):
        choose(data)


def test_a_folder_without_the_files_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"train\.jsonl") as refused:
        choose(tmp_path)
    assert "--corpus PATH" in (refused.value.hint or "")
    with pytest.raises(NotFound, match="no folder with problems is given"):
        problems.find(None, None, None)


@pytest.mark.skipif(not MATH.is_dir(), reason="../shared/data/math is not there")
def test_math_itself_has_a_hundred_questions() -> None:
    assert len(choose(MATH, 100)) == 100
