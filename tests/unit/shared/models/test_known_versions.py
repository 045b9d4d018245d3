"""Versions of model servers that lose answers are known by whatever they call themselves."""

import pytest

from shared.models.commands import find_warning


@pytest.mark.parametrize(
    "version",
    ["b10434-7e4c0a9", "10434 (7e4c0a9)", "0.1.0-dev (build 1, commit 7e4c0a9)", "b1-7e4c0a9", "10566 (abcdef0)"],
)
def test_a_version_that_loses_answers_is_warned_of(version: str) -> None:
    said = find_warning("llama.cpp", version)
    assert said is not None
    assert version in said
    assert "install another version" in said


@pytest.mark.parametrize(
    ("backend", "version"),
    [("llama.cpp", "11434 (1234567)"), ("llama.cpp", "b11549-1234567"), ("llama.cpp", ""), ("vllm", "10434")],
)
def test_nothing_is_said_of_other_versions(backend: str, version: str) -> None:
    assert find_warning(backend, version) is None
