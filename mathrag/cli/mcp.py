"""`mathrag mcp`: serve the API as tools of the Model Context Protocol, to the assistant that started this process."""

import logging
import sys
from typing import Annotated

import anyio
import typer

from mathrag.cli.output import report_errors

PATIENCE_S = 90.0
"""Timeout of a request in seconds: longer than the API lets a chat wait."""


def mcp(
    corpus: Annotated[str | None, typer.Option(help="Corpus to search (default: the only one).")] = None,
) -> None:
    """Run an MCP server for assistants over standard input and output (docs/how-to/mcp.md)."""
    with report_errors(as_json=False, needs="mathrag[mcp]"):
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
        from mathrag.mcp import serve

        anyio.run(serve, corpus, PATIENCE_S)
