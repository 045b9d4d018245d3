"""Run the worker of the generate lane: `python -m services.generator`."""

from collections.abc import Mapping

from shared.calls import Lane
from shared.runtime.process import Tools, serve
from shared.runtime.prompting import PromptExecutor
from shared.runtime.worker import Executor
from shared.settings import load


async def make_executors(tools: Tools) -> Mapping[str, Executor]:
    return {"generate": PromptExecutor(tools.database, tools.guards)}


if __name__ == "__main__":
    serve(Lane.GENERATE, load(), make_executors)
