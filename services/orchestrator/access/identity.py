"""Who calls: keys, sessions of browsers, and the scopes that they have."""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mathrag.errors import Forbidden, MathragError, TooMany, Unauthorized, Unavailable
from shared import shapes
from shared.access.filters import OPEN, SAFE, refuse
from shared.headers import key_of
from shared.storage import keys
from shared.storage.database import LOCAL, Database, limit_to
from shared.storage.keys import ValidKey
from shared.storage.quota import upload_as

COOKIE = "mathrag_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name of the cookie under HTTPS: browsers then accept it from this host alone, and only under HTTPS."""
LIFETIME_S = 12 * 3600
"""A working day in seconds; after it the key is required again."""
FIELD = "csrf"
"""Hidden field of every form that changes something."""


class Session(NamedTuple):
    """A session whose signature was checked."""

    prefix: str
    """Prefix of the key that was signed in with."""
    csrf: str
    """Token that a form must send back: only a page that was drawn for this session knows it."""


class Sessions:
    """Issues and checks the cookies of people who signed in with an API key.

    A cookie is signed with the service key, which is not in the database: an attacker who reads the stored hashes of
    keys can make no session of them. The server stores nothing, a revoked or expired key ends its sessions, and every
    process of the API accepts them.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """`secret` is the service key. Without one, sessions are valid in this process only."""
        self._secret = secret.encode() or secrets.token_bytes(32)
        self._clock = clock

    def start(self, response: Response, prefix: str, *, https: bool) -> None:
        """Set the cookie for the key with this prefix."""
        issued_at = int(self._clock())
        value = f"{prefix}.{issued_at}.{self._sign('session', prefix, str(issued_at))}"
        _set_cookie(response, value, LIFETIME_S, https=https)

    def find(self, headers: Headers, *, https: bool) -> Session | None:
        """Return the session of a request; None if it has none, or one that is forged or has expired."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(SECURE_COOKIE if https else COOKIE)
        except CookieError:
            return None
        prefix, _, rest = (morsel.value if morsel else "").partition(".")
        issued_at, _, signature = rest.partition(".")
        if not are_equal(self._sign("session", prefix, issued_at), signature):
            return None
        if not 0 <= self._clock() - int(issued_at) < LIFETIME_S:
            return None
        return Session(prefix, self._sign("form", signature))

    def _sign(self, *parts: str) -> str:
        return hmac.new(self._secret, " ".join(parts).encode(), hashlib.sha256).hexdigest()


def end(response: Response, *, https: bool) -> None:
    """Remove the cookie from the browser."""
    _set_cookie(response, "", 0, https=https)


def are_equal(one: str, other: str) -> bool:
    """Return whether two tokens are equal, in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _set_cookie(response: Response, value: str, lifetime_s: int, *, https: bool) -> None:
    name = SECURE_COOKIE if https else COOKIE
    response.set_cookie(name, value, max_age=lifetime_s, path="/", httponly=True, samesite="strict", secure=https)


FRESH_S = 5.0
"""Seconds after which a revoked key is refused."""
UNKNOWN_S = 0.1
"""Shortest time in seconds between look-ups of unknown keys: a new key works at once, and strangers cause no more
queries than this.
"""
USED_S = 60.0
WRONG_KEYS = 20
"""Wrong keys that an address may send to the sign-in form in a minute."""


@contextmanager
def report_outages() -> Iterator[None]:
    """Turn errors of the database into `Unavailable`: no caller can be admitted without it."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise Unavailable(
            "keys cannot be checked: the database does not answer", hint="see the log of PostgreSQL"
        ) from error


class Keyring:
    """The valid keys, cached for a few seconds, so that polling costs no query; there are only a few."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: dict[str, ValidKey] = {}
        self._read_at = float("-inf")
        self._used_at: dict[int, float] = {}
        self._wrong: Counter[str] = Counter()
        self._wrong_minute = 0.0

    async def find(self, database: Database, key: str) -> ValidKey | None:
        """Return the valid key that matches `key`; None if it does not exist.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        prefix = shapes.prefix_of(key)
        found = None if prefix is None else await self._load_key(database, prefix)
        if found is None or not shapes.matches_digest(key, found.digest):
            return None
        await self._note_use(database, found)
        return found

    async def find_session(self, database: Database, session: Session) -> ValidKey | None:
        """Return the key that was signed in with; None if it is no longer valid.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        found = await self._load_key(database, session.prefix)
        if found is not None:
            await self._note_use(database, found)
        return found

    async def _load_key(self, database: Database, prefix: str) -> ValidKey | None:
        async with self._lock:
            if self._clock() - self._read_at >= (FRESH_S if prefix in self._known else UNKNOWN_S):
                with report_outages():
                    self._known = await keys.load_valid_keys(database)
                self._read_at = self._clock()
            return self._known.get(prefix)

    async def _note_use(self, database: Database, key: ValidKey) -> None:
        if self._clock() - self._used_at.get(key.id, float("-inf")) >= USED_S:
            self._used_at[key.id] = self._clock()
            with report_outages():
                await keys.record_use(database, key)

    def count_wrong_key(self, address: str) -> None:
        """Count a wrong key that `address` sent to the sign-in form. A valid key is admitted regardless of the count: a
        key of 256 bits cannot be guessed, and a limit on all would let one client lock out the others.

        Raises:
            TooMany: it has sent too many in this minute.
        """
        minute = self._clock() // 60
        if minute != self._wrong_minute:
            self._wrong.clear()
            self._wrong_minute = minute
        self._wrong[address] += 1
        if self._wrong[address] > WRONG_KEYS:
            raise TooMany("too many wrong keys were sent from your address", hint="wait a minute, then sign in again")


SIGN_IN = "/sign-in"
OPEN_PATHS = frozenset({SIGN_IN, "/favicon.ico"})
OPEN_FOLDERS = ("/assets/",)
API = ("/v1/", "/openai/")


def is_open(path: str) -> bool:
    """Return whether a browser needs `path` before sign-in."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def is_page(path: str) -> bool:
    """Return whether `path` is outside the API."""
    return not path.startswith(API)


def wants_page(scope: Scope) -> bool:
    """Return whether a person reads the answer in a browser."""
    return is_page(scope["path"]) and "text/html" in Headers(scope=scope).get("accept", "")


Handler = Callable[..., Any]

_declared: dict[Handler, shapes.Scope | None] = {}


def declare_scope(handler: Handler, scope: shapes.Scope | None) -> None:
    """Require `scope` of the keys that call `handler`; None admits everybody."""
    _declared[handler] = scope


def get_declared_scope(handler: Handler) -> shapes.Scope | None:
    """Return the scope that `handler` requires; None if it is open to everybody.

    Raises:
        KeyError: the handler declares no scope.
    """
    return _declared[handler]


async def authorise(request: Request) -> None:
    """Check before every route that the key has the scope that the route requires.

    Raises:
        Forbidden: it has not, or the route declares no scope.
    """
    try:
        scope = get_declared_scope(request.scope["endpoint"])
    except KeyError:
        route = f"{request.method} {request.scope['route'].path}"
        raise Forbidden(
            f"{route} declares no scope",
            hint="this is a defect of the service: declare the route with `api.routes.route`",
        ) from None
    if scope is not None:
        check_scope(request.state.scopes, scope)


def check_scope(scopes: Collection[str], wanted: shapes.Scope) -> None:
    """Check that a key with these scopes has `wanted`.

    Raises:
        Forbidden: it has not.
    """
    if not shapes.allows(scopes, wanted):
        raise Forbidden(
            f"this API key lacks the scope {wanted.value!r}", hint=f"mathrag key create NAME --scope {wanted.value}"
        )


HINT = "send `Authorization: Bearer KEY`, or set MATHRAG_API_KEY; the operator creates one with `mathrag key create`"
EVERYTHING = (shapes.Scope.OPERATE,)


class Identity:
    """Admits callers with a valid key and records its name; if keys are not required, everybody is the operator, and
    called `local`.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring | None, sessions: Sessions) -> None:
        self._app = app
        self._keyring = keyring
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        found = None
        try:
            state = scope.setdefault("state", {})
            state["actor"], state["prefix"], state["scopes"] = LOCAL, None, EVERYTHING if self._keyring is None else ()
            state["keyring"], state["sessions"], state["csrf"] = self._keyring, self._sessions, None
            if not (self._keyring is None or scope["path"] in OPEN or is_open(scope["path"])):
                found = await self._find_key(scope, self._keyring)
                state["actor"], state["prefix"], state["scopes"] = found.name, found.prefix, found.scopes
        except Unauthorized as error:
            if wants_page(scope):
                query = scope["query_string"].decode("latin-1")
                wanted = scope["path"] + (f"?{query}" if query else "")
                back = f"?next={quote(wanted, safe='/')}" if scope["method"] in SAFE else ""
                return await RedirectResponse(SIGN_IN + back, 303)(scope, receive, send)
            return await refuse(error, scope, receive, send)
        except MathragError as error:
            return await refuse(error, scope, receive, send)
        if found is None:
            return await self._app(scope, receive, send)
        most = scope["app"].state.deps.settings.limits.storage_mib_per_key
        with limit_to(found.project), upload_as(found.name, most):
            return await self._app(scope, receive, send)

    async def _find_key(self, scope: Scope, keyring: Keyring) -> ValidKey:
        """Return the key that the request sends, or that the visitor signed in with. A session is accepted for pages,
        and for reads that a page links to.
        """
        database: Database = scope["app"].state.deps.admission
        headers = Headers(scope=scope)
        key = key_of(headers.get("authorization", ""))
        if key is not None:
            found = await keyring.find(database, key)
            if found is None:
                raise Unauthorized("this API key is not valid: unknown, expired or revoked", hint=HINT)
            return found
        session = self._sessions.find(headers, https=scope["scheme"] == "https")
        if session is None or not (is_page(scope["path"]) or scope["method"] in SAFE):
            raise Unauthorized("an API key is required", hint=HINT)
        found = await keyring.find_session(database, session)
        if found is None:
            raise Unauthorized("the session has ended", hint=f"sign in again: {SIGN_IN}")
        scope["state"]["csrf"] = session.csrf
        return found


def _get_actor(request: Request) -> str:
    actor: str = request.state.actor
    return actor


Actor = Annotated[str, Depends(_get_actor)]
"""Name of the caller, for the journal of operations."""


class Caller(NamedTuple):
    """Who sends a request, and what they may do."""

    name: str | None
    """Name of the key; None where no keys are asked for."""
    scopes: Collection[str]

    def may_change(self, submitted_by: str | None) -> bool:
        """Return whether the caller may change a job of this key. A job without one is everybody's."""
        return submitted_by in (None, self.name) or shapes.allows(self.scopes, shapes.Scope.OPERATE)

    def check_owns(self, submitters: Collection[str | None], what: str) -> None:
        """Check that the caller may change jobs of all these keys.

        Raises:
            Forbidden: another key submitted one of them, and the caller is not an operator.
        """
        others = [name for name in submitters if not self.may_change(name)]
        if others:
            raise Forbidden(
                f"{what} was submitted with the key {others[0]!r}",
                hint="ask its owner, or use a key with the scope 'operate'",
            )


def get_caller(request: Request) -> Caller:
    """Return who sends the request."""
    return Caller(None if request.state.keyring is None else request.state.actor, request.state.scopes)


RequestCaller = Annotated[Caller, Depends(get_caller)]
