"""Where processes of ours may connect to is decided by the operator's settings, not by environment or answers."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from shared.settings import REPOSITORY

CLIENTS = ("httpx2.AsyncClient", "httpx2.Client")
SOURCES = sorted(file for folder in ("services", "shared") for file in (REPOSITORY / folder).rglob("*.py"))
OTHER_LIBRARY = re.compile(
    r"^[ \t]*(?:import[ \t]+(?:[^\n#]*,[ \t]*)?|from[ \t]+)(requests|httpx|aiohttp|urllib3)\b", re.MULTILINE
)


def clients(file: Path) -> Iterator[dict[str | None, ast.expr]]:
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "httpx2" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLIENTS:
            yield {keyword.arg: keyword.value for keyword in node.keywords}


FOUND = [(file, arguments) for file in SOURCES for arguments in clients(file)]


def test_there_are_clients_to_look_at() -> None:
    assert len(FOUND) > 4


def test_no_client_of_a_service_asks_the_environment() -> None:
    assert [file for file, arguments in FOUND if ast.unparse(arguments["trust_env"]) != "False"] == []


def test_no_client_follows_a_redirect() -> None:
    assert [file for file, arguments in FOUND if "follow_redirects" in arguments] == []


def test_nothing_else_opens_addresses() -> None:
    texts = {file.relative_to(REPOSITORY).as_posix(): file.read_text("utf-8") for file in SOURCES}
    assert {name: found for name, text in texts.items() if (found := OTHER_LIBRARY.findall(text))} == {}
