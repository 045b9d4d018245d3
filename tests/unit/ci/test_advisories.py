"""The check for known vulnerabilities fails for one, and never calls a check that did not happen a success."""

import json
from types import ModuleType
from typing import Any

import pytest

from tests.unit.ci.scripts import load


@pytest.fixture(scope="module")
def advisories() -> ModuleType:
    return load("advisories")


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


SOUND: dict[str, Any] = {"name": "sound", "version": "1", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "unknown", "skip_reason": "not found"}
BROKEN: dict[str, Any] = {"name": "broken", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}


def test_a_vulnerability_fails(advisories: ModuleType) -> None:
    code, words = advisories.judge(report(SOUND, UNKNOWN, BROKEN), "")
    assert code == 1
    assert "broken 2: CVE-1, mended in 3" in words


def test_none_is_a_success_that_counts_what_was_checked(advisories: ModuleType) -> None:
    assert advisories.judge(report(SOUND), "") == (0, "No known vulnerability in 1 packages")
    assert advisories.judge(report(SOUND, UNKNOWN), "") == (0, "No known vulnerability in 1 packages; 1 NOT checked")


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("", "requests.exceptions.ConnectionError: Max retries exceeded"),
        (report(UNKNOWN, UNKNOWN), "No known vulnerabilities found"),
    ],
)
def test_a_source_that_does_not_answer_is_said_to_be_skipped(advisories: ModuleType, output: str, errors: str) -> None:
    code, words = advisories.judge(output, errors)
    assert code == 0
    assert words.startswith("SKIPPED")


def test_any_other_failure_is_one(advisories: ModuleType) -> None:
    assert advisories.judge("", "ERROR: invalid requirement") == (1, "pip-audit failed: ERROR: invalid requirement")
