"""Recognises requests of browsers, which are answered with pages."""

from starlette.datastructures import Headers
from starlette.types import Scope

SIGN_IN = "/sign-in"
OPEN_PATHS = frozenset({SIGN_IN, "/favicon.ico"})
OPEN_FOLDERS = ("/assets/",)
API = ("/v1/", "/openai/")


def is_open(path: str) -> bool:
    """Return whether a browser needs what is at `path` before anybody has signed in."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def is_page(path: str) -> bool:
    """Return whether `path` is outside the API."""
    return not path.startswith(API)


def wants_page(scope: Scope) -> bool:
    """Return whether a person reads the answer in a browser."""
    return is_page(scope["path"]) and "text/html" in Headers(scope=scope).get("accept", "")
