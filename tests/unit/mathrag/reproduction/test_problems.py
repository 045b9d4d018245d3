"""The problems of a reproduction: found by name, checked for what they are, drawn with every subject's share."""

import json
from pathlib import Path

import pytest

from mathrag.reproduction import problems
from shared.errors import Invalid, MathragError, NotFound
from shared.settings import REPOSITORY
from tests.unit.reproductions import problem, write

MATH = REPOSITORY.parent / "shared" / "data" / "math"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "train.jsonl", range(20))
    write(tmp_path / "test.jsonl", range(100, 110))
    return tmp_path


def read(data: Path, items: int | None = None) -> problems.Problems:
    return problems.read(*problems.find(data, None, None), items)


def test_both_files_are_found_by_their_usual_names(data: Path) -> None:
    found = read(data)
    assert (found.documents, found.items, found.of) == (20, 10, 10)
    first = json.loads(found.asked.splitlines()[0])
    assert (first["question"], first["gold"], first["subject"]) == ("What is 100 + 100?", "200", "Algebra")


def test_the_folders_of_the_original_archive_are_found_too(tmp_path: Path) -> None:
    for part, numbers in (("train", range(4)), ("test", range(100, 103))):
        for number in numbers:
            file = tmp_path / part / "algebra" / f"{number}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(problem(number)))
    assert (read(tmp_path).documents, read(tmp_path).items) == (4, 3)


def test_a_file_that_is_named_goes_before_the_folders(data: Path) -> None:
    other = write(data / "other.jsonl", range(200, 203))
    assert problems.find(data, None, other) == (data / "train.jsonl", other)
    assert problems.find(None, other, data / "test.jsonl") == (other, data / "test.jsonl")


def test_a_part_has_every_subjects_share_and_is_the_same_again(data: Path) -> None:
    subjects = [json.loads(line)["subject"] for line in read(data, 4).asked.splitlines()]
    assert sorted(subjects) == ["Algebra", "Algebra", "Geometry", "Geometry"]
    assert read(data, 4).asked == read(data, 4).asked
    assert any("4 of 10 questions" in note for note in read(data, 4).notes)


def test_names_follow_the_content(data: Path) -> None:
    before = read(data)
    write(data / "train.jsonl", range(1, 21))
    assert read(data).corpus_name != before.corpus_name
    assert read(data).dataset_name == before.dataset_name
    assert read(data, 5).dataset_name != before.dataset_name


def test_a_corpus_of_another_size_is_noted_not_refused(data: Path) -> None:
    assert read(data).notes == ("the corpus has 20 documents; MATH's training set has 7500",)


def test_questions_that_stand_in_the_corpus_are_counted(data: Path) -> None:
    write(data / "test.jsonl", range(100, 110))
    with (data / "test.jsonl").open("a") as opened:
        opened.write(json.dumps(problem(3, problem="what  is 3 + 3?")) + "\n")
    assert any(note.startswith("1 of the 11 questions are in the corpus") for note in read(data).notes)


def test_questions_without_subjects_may_not_be_math(data: Path) -> None:
    write(data / "test.jsonl", range(100, 110), type=None)
    assert any("is this MATH?" in note for note in read(data, 5).notes)


def test_a_corpus_that_holds_the_questions_is_the_wrong_file(data: Path) -> None:
    with pytest.raises(Invalid, match=r"10 of the 10 questions of .*test.jsonl are in it") as refused:
        problems.read(data / "test.jsonl", data / "test.jsonl", None)
    assert refused.value.hint == problems.EXPECTED


def test_passages_are_no_worked_solutions(data: Path) -> None:
    (data / "train.jsonl").write_text('{"id": "1", "text": "A passage."}\n')
    with pytest.raises(Invalid, match="1 of its 1 documents are not a problem with a solution"):
        read(data)


def test_questions_without_answers_cannot_be_graded(data: Path) -> None:
    (data / "test.jsonl").write_text('{"problem": "?", "answer": "1"}\n{"problem": "Why?"}\n')
    with pytest.raises(Invalid, match="1 of its 2 questions have no gold answer"):
        read(data)


def test_more_questions_than_there_are_is_refused_with_how_many_there_are(data: Path) -> None:
    with pytest.raises(Invalid, match="holds 10 questions") as refused:
        read(data, 500)
    assert refused.value.hint == "--items 10"


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_a_pointer_of_git_lfs_is_no_file(data: Path, name: str) -> None:
    (data / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(MathragError, match=f"{name}.*git lfs pull") as refused:
        read(data)
    assert refused.value.hint


def test_a_folder_without_the_files_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"train\.jsonl") as refused:
        read(tmp_path)
    assert "--corpus PATH" in (refused.value.hint or "")
    with pytest.raises(NotFound, match="no folder with problems is given"):
        problems.find(None, None, None)


@pytest.mark.skipif(not MATH.is_dir(), reason="../shared/data/math is not there")
def test_math_itself_is_well() -> None:
    found = read(MATH, 100)
    assert (found.documents, found.items, found.of) == (problems.WHOLE, 100, 1000)
    assert found.notes == ("100 of 1000 questions are asked, in proportion to the subjects, with seed 1",)
