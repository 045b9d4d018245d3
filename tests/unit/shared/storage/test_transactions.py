"""A generator holds no connection of the database while its reader is busy, which may be a slow client."""

import ast
from collections.abc import Iterator
from pathlib import Path

from shared.settings import REPOSITORY

import pytest

pytestmark = pytest.mark.anyio

OPENERS = {"transaction", "statement", "snapshot", "begin", "connect"}


def find_yields(source: str) -> Iterator[int]:
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not function.decorator_list:
            for block in ast.walk(function):
                if isinstance(block, ast.AsyncWith | ast.With) and any(map(opens_transaction, block.items)):
                    yield from (node.lineno for node in ast.walk(block) if isinstance(node, ast.Yield | ast.YieldFrom))


def opens_transaction(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in OPENERS


def test_no_generator_yields_in_a_transaction() -> None:
    files = [file for folder in ("shared", "services") for file in (REPOSITORY / folder).rglob("*.py")]
    assert len(files) > 100
    places = [f"{file.relative_to(REPOSITORY)}:{line}" for file in files for line in find_yields(file.read_text())]
    assert places == [], "read page by page instead, each in its own statement, as `rule_banks.read_rules` does"


@pytest.mark.parametrize(
    "body",
    [
        "async with database.transaction() as connection:\n        yield 1",
        "async with database.snapshot() as connection:\n        for row in await read(connection): yield row",
    ],
)
def test_a_yield_in_a_transaction_is_found(body: str) -> None:
    assert list(find_yields(f"async def stream(database):\n    {body}\n"))
    assert not list(find_yields(f"@asynccontextmanager\nasync def stream(database):\n    {body}\n"))
