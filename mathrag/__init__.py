"""MathRAG-Gate from Python: `from mathrag import Client`.

Each name is imported on first use, because the command line also imports this package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mathrag.client.async_client import AsyncClient
    from mathrag.client.client import Client
    from mathrag.client.errors import Failed

__all__ = ["AsyncClient", "Client", "Failed"]
_MODULES = {
    "AsyncClient": "mathrag.client.async_client",
    "Client": "mathrag.client.client",
    "Failed": "mathrag.client.errors",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'mathrag' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
