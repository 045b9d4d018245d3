"""States that the database keeps as numbers, and SQL that many statements share, are written in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from shared.settings import REPOSITORY

import pytest

from shared.storage.database import NAMES, fill_names

pytestmark = pytest.mark.anyio

SOURCES = sorted(
    file
    for folder in ("shared", "services", "mathrag", "tools")
    for file in (REPOSITORY / folder).rglob("*.py")
    if file != REPOSITORY / "shared/storage/database.py"
)
NUMBERED = re.compile(r"\bstate\s*(=|<>|!=|<=?|>=?|(NOT )?IN\s*\(|WHEN|= CASE [^)]*? THEN)\s*\d")
ACCEPTED = re.compile(r"(?<!NOT )\b\w+\.accepted AND\b|\bAND \w+\.accepted\b")
SHARED = [value for value in NAMES.values() if re.search("[a-z]", value)]


def written_out(text: str) -> Iterator[str]:
    flat = " ".join(text.split())
    yield from (found[0] for pattern in (NUMBERED, ACCEPTED) if (found := pattern.search(flat)))
    yield from (value for value in SHARED if value in flat)


def texts(file: Path) -> Iterator[tuple[str, str]]:
    source = file.read_text()
    for node in ast.walk(ast.parse(source)) if any(written_out(source)) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{file.relative_to(REPOSITORY)}:{node.lineno}", node.value


def test_no_module_writes_out_what_has_a_name() -> None:
    assert len(SOURCES) > 300
    assert [(place, each) for file in SOURCES for place, text in texts(file) for each in written_out(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM samples WHERE state = 1",
        "SELECT id FROM samples s WHERE s.state\n    IN (0, 1)",
        "UPDATE samples SET state = 4, ended_at = now()",
        "SELECT CASE s.state WHEN 4 THEN 'cancelled' END FROM samples s",
        "SELECT id FROM samples s WHERE s.state = CASE j.state WHEN 'paused' THEN 1 END",
        "SELECT a.reply FROM calls c JOIN attempts a ON a.call_id = c.id AND a.accepted",
        "SELECT a.reply FROM calls c JOIN attempts b ON b.accepted AND b.call_id = c.id",
        "SELECT id FROM jobs WHERE state IN ('preparing', 'running')",
        "SELECT 1 FROM steps t WHERE t.sample_id = s.id\n    AND t.position = s.position - 1",
    ],
)
def test_a_statement_that_writes_out_what_has_a_name_is_found(text: str) -> None:
    assert list(written_out(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM samples WHERE state = {WAITING}",
        "UPDATE samples s SET state = u.state WHERE s.id = u.id",
        "SELECT id FROM jobs WHERE state IN ('cancelling', 'paused') LIMIT 1",
        "SELECT id FROM attempts a WHERE NOT a.accepted AND a.outcome = 'lapsed'",
    ],
)
def test_other_statements_are_not(text: str) -> None:
    assert not list(written_out(text))


def test_an_unknown_name_is_refused_while_its_module_loads() -> None:
    with pytest.raises(KeyError, match="WAITNG"):
        fill_names("SELECT id FROM samples WHERE state = {WAITNG}")
