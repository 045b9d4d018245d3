"""The server: tools listed, tools called, over standard input and output. Nothing else is ever written there."""

from importlib.metadata import version
from typing import Any

import msgspec
from mcp.server.lowlevel import Server as Protocol
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from mathrag.client.async_client import AsyncClient
from mathrag.client.errors import failure
from mathrag.mcp.tools import BY_NAME, TOOLS, Server

INSTRUCTIONS = "Search a corpus of mathematics, ask questions about it, and run jobs over datasets of questions."


def protocol(server: Server) -> Protocol[Any]:
    """What answers a client."""

    async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_shown(name) for name in BY_NAME])

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        return await _called(server, params)

    return Protocol(
        "mathrag",
        version=version("mathrag-gate"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(corpus: str | None, patience_s: float) -> None:
    """Answer one client until it closes our standard input; `corpus` is searched where a call names none."""
    async with AsyncClient(patience_s=patience_s) as client, stdio_server() as (reading, writing):
        speaking = protocol(Server(client, corpus))
        await speaking.run(reading, writing, speaking.create_initialization_options())


def _shown(name: str) -> Tool:
    tool = BY_NAME[name]
    hints = ToolAnnotations(read_only_hint=not tool.changes, destructive_hint=False, open_world_hint=False)
    return Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


async def _called(server: Server, params: CallToolRequestParams) -> CallToolResult:
    """What a tool answers; what goes wrong is told to the model with its fix, as it may know better then."""
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"no tool {params.name!r}; there are {', '.join(each.name for each in TOOLS)}")
    try:
        value = await tool.run(server, params.arguments or {})
    except Exception as error:  # noqa: BLE001 - a defect of ours is told in words, too
        failed = failure(error)
        words = failed.message + (f"\nfix: {failed.hint}" if failed.hint else "")
        return CallToolResult(content=[TextContent(text=words)], is_error=True)
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content=value)
