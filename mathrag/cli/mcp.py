"""`mathrag mcp`: the API as tools of the Model Context Protocol, for assistants that start us themselves."""

import logging
import sys
from typing import Annotated

import anyio
import typer

from mathrag.cli.failures import reported
from mathrag.client.errors import Failed

SDK = ("mcp", "mcp_types")
PATIENCE_S = 90.0
"""Longer than the API lets a chat wait."""


def mcp(
    corpus: Annotated[str | None, typer.Option(help="What is searched. [default: the only one there is]")] = None,
) -> None:
    """Serve an assistant over standard input and output, as MCP clients want it; docs/mcp.md has their snippet."""
    with reported(as_json=False):
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
        try:
            from mathrag.mcp.server import serve
        except ModuleNotFoundError as missing:
            if str(missing.name).partition(".")[0] not in SDK:
                raise
            raise Failed("usage", "the MCP SDK is not installed", hint="pip install 'mathrag-gate[mcp]'") from missing
        anyio.run(serve, corpus, PATIENCE_S)
