"""The OpenAPI document, and what commands print of the examples in it, are as recorded in `tests/golden`."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from shared.settings import REPOSITORY
from tests import golden
from tests.api_document import api_document
from tests.unit.commands import Server, mathrag

COMMANDS = """
corpus list
corpus show math
corpus preview math
corpus contamination math math-500
corpus orphans
dataset list
dataset show math-500
dataset preview math-500
graph list
graph show family
rules list
rules show family
job list
job show gate
job submit --name gate --dataset math-500 --corpus math --pipeline mathrag-gate
job cancel gate
job pause gate
job resume gate
job requeue gate
job report gate
job compare gate dense
job calibrate gate
experiment list
experiment show gate-or-not
experiment report gate-or-not
experiment cancel gate-or-not
experiment resume gate-or-not
sample list gate
sample show gate 0
sample list gate --noted
sample note gate 0 --thumb down
label list
label show blind
label next blind
label agreement blind
label calibration blind
pipeline list
model list
plugin list
gpu status
audit gate
plan gate
search "What is 2 + 3?" --corpus math
key list
config show
config history
status
"""


def example_of(request: httpx2.Request) -> httpx2.Response:
    """Answer a request with its operation's example in the OpenAPI document."""
    for path, operations in api_document()["paths"].items():
        operation = operations.get(request.method.lower())
        if operation and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), unquote(request.url.path)):
            status, response = next(
                (int(status), each) for status, each in operation["responses"].items() if status[0] == "2"
            )
            content: dict[str, Any] = response.get("content", {})
            return httpx2.Response(status, json=content["application/json"]["example"] if content else None)
    return httpx2.Response(404, json={"type": "urn:mathrag:not_found", "detail": str(request.url)})


def test_the_openapi_document_is_the_recorded_one() -> None:
    document = dict(api_document())
    paths, components = document.pop("paths"), document.pop("components")
    lines = [
        *(f"{key}: {json.dumps(document[key], ensure_ascii=False)}" for key in sorted(document)),
        *(
            f"{method} {path}: {json.dumps(paths[path][method], ensure_ascii=False)}"
            for path in sorted(paths)
            for method in sorted(paths[path])
        ),
        *(
            f"{kind}/{name}: {json.dumps(components[kind][name], ensure_ascii=False)}"
            for kind in sorted(components)
            for name in sorted(components[kind])
        ),
    ]
    golden.compare("openapi.txt", "\n".join(lines) + "\n")


def test_commands_print_the_recorded_text_and_json(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    server(example_of)
    shown = []
    here = str(Path.cwd())
    for line in COMMANDS.strip().splitlines():
        words = [quoted or word for quoted, word in re.findall(r'"([^"]*)"|(\S+)', line)]
        for arguments in (words, [*words, "--json"]):
            ended = mathrag(*arguments)
            printed = f"{ended.stdout}{ended.stderr}".replace(here, "HERE").replace(str(REPOSITORY), "REPOSITORY")
            shown.append(f"$ mathrag {' '.join(arguments)}\n{printed}[{ended.exit_code}]\n")
    golden.compare("commands.txt", "\n".join(shown))
