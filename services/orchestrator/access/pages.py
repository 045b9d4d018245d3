"""Which requests come from somebody who looks at pages, and so want a page as their answer."""

from starlette.datastructures import Headers
from starlette.types import Scope

SIGN_IN = "/sign-in"
OPEN_PATHS = frozenset({SIGN_IN, "/favicon.ico"})
OPEN_FOLDERS = ("/assets/",)
API = ("/v1/", "/openai/")


def is_open(path: str) -> bool:
    """Whether a browser needs what is at `path` before anybody has signed in."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def is_page(path: str) -> bool:
    """Whether `path` is outside the API."""
    return not path.startswith(API)


def wants_page(scope: Scope) -> bool:
    """Whether the answer is to be read by a person in a browser."""
    return is_page(scope["path"]) and "text/html" in Headers(scope=scope).get("accept", "")
