"""A folder's results belong to one run: the same again goes on, anything else is refused in words."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.reproduction import record
from mathrag.reproduction.record import Record
from shared.errors import Conflict

NOW = Record(
    preset="paper",
    experiment={
        "name": "math-paper-1", "datasets": [{"dataset": "math-asked-100-aa", "corpus": "math-7500-cc"}], "repeats": 5,
        "params": {"gate": {"tau": 0.45}},
    },
    models={"qwen2.5-0.5b-instruct": "a" * 64, "qwen2.5-7b-instruct": "b" * 64},
    embeddings={"kind": "gguf"},
)  # fmt: skip


def refusal(tmp_path: Path, **changed: Any) -> str:
    record.write(tmp_path, NOW)
    with pytest.raises(Conflict) as refused:
        record.check(tmp_path, msgspec.structs.replace(NOW, **changed))
    assert refused.value.hint == f"use --out {tmp_path}-2 for a new run, or undo the change"
    return refused.value.message


def test_a_new_folder_and_the_same_again_go_on(tmp_path: Path) -> None:
    record.check(tmp_path, NOW)
    record.write(tmp_path, NOW)
    record.check(tmp_path, NOW)
    record.check(tmp_path, msgspec.structs.replace(NOW, experiment={**NOW.experiment, "name": "other"}))


def test_a_model_that_was_pulled_again_is_named_with_both_digests(tmp_path: Path) -> None:
    said = refusal(tmp_path, models={**NOW.models, "qwen2.5-7b-instruct": "c" * 64})
    assert f"qwen2.5-7b-instruct was {'b' * 12} and is {'c' * 12} now" in said


def test_other_models_are_another_run(tmp_path: Path) -> None:
    assert "its models were qwen2.5-0.5b-instruct, qwen2.5-7b-instruct" in refusal(tmp_path, models={"other": None})


def test_other_problems_are_another_run(tmp_path: Path) -> None:
    other = {**NOW.experiment, "datasets": [{"dataset": "math-asked-500-bb", "corpus": "math-7500-cc"}]}
    said = refusal(tmp_path, experiment=other)
    assert "its problems were math-asked-100-aa over math-7500-cc, now math-asked-500-bb over math-7500-cc" in said


def test_another_embedder_is_another_run(tmp_path: Path) -> None:
    assert "its embedder was another one" in refusal(tmp_path, embeddings={"kind": "static"})


def test_changed_parameters_are_named_with_their_values(tmp_path: Path) -> None:
    said = refusal(tmp_path, experiment={**NOW.experiment, "repeats": 1, "seeds": [1]})
    assert "`repeats` was 5, now 1" in said
    assert "`seeds` was null, now [1]" in said
