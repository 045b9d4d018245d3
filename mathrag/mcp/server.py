"""The MCP server: lists and calls tools over standard input and output, where nothing else may be written."""

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


def build_protocol(server: Server) -> Protocol[Any]:
    """Build the MCP server that lists the tools and calls them."""

    async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_to_tool(name) for name in BY_NAME])

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        return await _call(server, params)

    return Protocol(
        "mathrag",
        version=version("mathrag-gate"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(corpus: str | None, patience_s: float) -> None:
    """Serve one client until it closes standard input; `corpus` is the default of calls that name none."""
    async with AsyncClient(timeout_s=patience_s) as client, stdio_server() as (reading, writing):
        speaking = build_protocol(Server(client, corpus))
        await speaking.run(reading, writing, speaking.create_initialization_options())


def _to_tool(name: str) -> Tool:
    tool = BY_NAME[name]
    hints = ToolAnnotations(read_only_hint=not tool.changes, destructive_hint=False, open_world_hint=False)
    return Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


async def _call(server: Server, params: CallToolRequestParams) -> CallToolResult:
    """Call a tool, and return its result or, for the model to correct its call, the error with its fix."""
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise MCPError(
            INVALID_PARAMS, f"there is no tool {params.name!r}; the tools are {', '.join(each.name for each in TOOLS)}"
        )
    try:
        value = await tool.run(server, params.arguments or {})
    except Exception as error:  # noqa: BLE001 - a defect must reach the model as a message, too
        failed = failure(error)
        words = failed.message + (f"\nfix: {failed.hint}" if failed.hint else "")
        return CallToolResult(content=[TextContent(text=words)], is_error=True)
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content=value)
