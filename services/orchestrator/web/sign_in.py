"""Signs visitors in with an API key, and out again."""

import re
import time
from collections import deque
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Form, Response

from services.orchestrator.access import sessions
from services.orchestrator.access.pages import SIGN_IN
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, go_to, page
from shared.errors import TooMany

router = APIRouter()
WRONG = "this key is not valid: unknown, expired or revoked"
_OWN_PATH = re.compile(r"/(?![/\\])[^\s\\]*")
"""Matches a path of this site; browsers take `//host` and `/\\host` for other sites."""


class SignInAttempts:
    """Limits how often a wrong key may be sent to this process."""

    def __init__(self, most: int = 20, within_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._failed: deque[float] = deque()

    def check(self) -> None:
        """Refuse a further attempt after too many wrong keys.

        Raises:
            TooMany: the limit is reached; it is lifted within a minute.
        """
        while self._failed and self._clock() - self._failed[0] >= self._within_s:
            self._failed.popleft()
        if len(self._failed) >= self._most:
            raise TooMany("too many wrong keys were sent", hint="wait a minute, then sign in again")

    def note_failure(self) -> None:
        """Count a wrong key."""
        self._failed.append(self._clock())


_tries = SignInAttempts()


@page(router, SIGN_IN, None)
async def ask(visit: Visitor, next: str = "/") -> Response:  # noqa: A002 - the address's word
    """Shows the form; if no keys are required, redirects to the start page."""
    if visit.request.state.keyring is None:
        return go_to("/")
    return visit.show("sign_in.html", title="Sign in", next=_check_own_path(next), wrong=None)


@page(router, SIGN_IN, None, method="POST")
async def sign_in(
    visit: Visitor,
    deps: RequestDeps,
    key: Annotated[str, Form()],
    next: Annotated[str, Form()] = "/",  # noqa: A002
) -> Response:
    """Starts a session if the key is valid, else shows the form again."""
    keyring = visit.request.state.keyring
    if keyring is None:
        return go_to("/")
    _tries.check()
    found = await keyring.find(deps.database, key.strip())
    if found is None:
        _tries.note_failure()
        return visit.show("sign_in.html", title="Sign in", status=401, next=_check_own_path(next), wrong=WRONG)
    response = go_to(_check_own_path(next))
    response.set_cookie(
        sessions.COOKIE, sessions.issue(found.prefix, found.digest), max_age=sessions.LIFETIME_S, httponly=True,
        samesite="strict", secure=visit.request.url.scheme == "https",
    )  # fmt: skip
    return response


@page(router, "/sign-out", None, method="POST")
async def sign_out() -> Response:
    """Removes the session from the browser; its key stays valid."""
    response = go_to(SIGN_IN)
    response.delete_cookie(sessions.COOKIE, httponly=True, samesite="strict")
    return response


def _check_own_path(path: str) -> str:
    return path if _OWN_PATH.fullmatch(path) else "/"
