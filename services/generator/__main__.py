"""`python -m services.generator`: the worker of the generate lane."""

from collections.abc import Mapping

from shared.contracts.calls import Lane
from shared.runtime.execution import Executor
from shared.runtime.process import Tools, serve
from shared.runtime.prompting import Prompting
from shared.settings import load


async def executors(tools: Tools) -> Mapping[str, Executor]:
    """The generator's one role."""
    return {"generate": Prompting(tools.database, tools.guards)}


if __name__ == "__main__":
    serve(Lane.GENERATE, load(), executors)
