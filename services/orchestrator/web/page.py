"""Shared by all pages: routes, navigation and messages."""

import gzip
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from markupsafe import Markup
from pydantic import BaseModel, ValidationError

from mathrag.errors import Forbidden, Invalid, MathragError
from services.orchestrator.access import identity
from services.orchestrator.access.identity import declare_scope, get_caller
from services.orchestrator.access.limits import check_text
from services.orchestrator.api.routes import list_field_messages, make_problem
from shared.access.filters import comes_from_here
from shared.pages.formatting import mark_code
from shared.pages.pages import Pages
from shared.shapes import Scope, allows


class NavigationLink(NamedTuple):
    """A page in the navigation."""

    name: str
    path: str
    scope: Scope = Scope.READ
    """Scope without which the page is of no use."""


GROUPS = {
    "Results": (
        NavigationLink("Jobs", "/jobs"),
        NavigationLink("Submit", "/submit", Scope.SUBMIT),
        NavigationLink("Compare", "/compare"),
        NavigationLink("Experiments", "/experiments"),
        NavigationLink("Labels", "/labels"),
    ),
    "Data": (
        NavigationLink("Corpora", "/corpora"),
        NavigationLink("Datasets", "/datasets"),
        NavigationLink("Prompts", "/prompts"),
        NavigationLink("Rules", "/rules"),
        NavigationLink("Search", "/search"),
    ),
    "Machine": (
        NavigationLink("Now", "/now"),
        NavigationLink("Models", "/models"),
        NavigationLink("Pipelines", "/pipelines"),
        NavigationLink("Plan", "/plan"),
        NavigationLink("Configuration", "/configuration"),
        NavigationLink("Doctor", "/doctor"),
        NavigationLink("Keys", "/keys", Scope.OPERATE),
    ),
}
"""Pages of the navigation by group."""


def find_current(path: str) -> str | None:
    """Return the path of the link that the page at `path` belongs to; None if it belongs to none."""
    top = f"/{path.split('/')[1]}"
    return next((link.path for links in GROUPS.values() for link in links if link.path == top), None)


Handler = TypeVar("Handler", bound=Callable[..., Any])
Model = TypeVar("Model", bound=BaseModel)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
MOST_FIELDS = 500
"""Upper bound of a form's fields; the largest, of a job with all its parameters, has some 130."""
SMALLEST_PACKED = 1000
"""Size in bytes below which compression saves nothing."""


class Visit:
    """Gives a page's function the visitor's request, and answers it with a template."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.actor: str = request.state.actor
        self.caller = get_caller(request)
        self.https = request.url.scheme == "https"

    def may(self, scope: str) -> bool:
        """Return whether this visitor's key has `scope`; buttons for other operations are not shown."""
        return allows(self.request.state.scopes, Scope(scope))

    def query(self, model: type[Model]) -> Model:
        """Parse the address's query as the API does; fields that a form left empty are not set.

        Raises:
            RequestValidationError: a value cannot be used; the error names the field.
        """
        return parse_as(model, {name: value for name, value in self.request.query_params.items() if value})

    def show(self, template: str, *, title: str, json: str | None = None, status: int = 200, **values: Any) -> Response:
        """Answer with the page that `template` draws from `values`.

        Args:
            title: title of the page, and its heading if the template has no other.
            json: path of the same data in the API.
        """
        path = self.request.url.path
        drawn = make_environment().get_template(template).render(
            title=title, json=json, visit=self, csrf=self.request.state.csrf,
            nav={group: [link for link in links if self.may(link.scope)] for group, links in GROUPS.items()},
            here=find_current(path), path=path,
            signed_in=self.request.state.csrf is not None, **values,
        )  # fmt: skip
        body = drawn.encode("utf-8", "replace")
        # With "no-referrer" browsers send `Origin: null` with the service's own forms, which are then refused.
        headers = {
            "Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Vary": "Accept-Encoding, Cookie"
        }  # fmt: skip
        if len(body) >= SMALLEST_PACKED and "gzip" in self.request.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = gzip.compress(body, 3), "gzip"
        return Response(body, status, headers, "text/html; charset=utf-8")


Visitor = Annotated[Visit, Depends()]
"""Type of a page's parameter for its visit."""


def page(
    router: APIRouter, path: str, scope: Scope | None = Scope.READ, *, method: str = "GET"
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the page at `method` `path`. A form (`POST`) must be sent by a page of the
    same session.
    """

    def add(handler: Handler) -> Handler:
        declare_scope(handler, scope)
        checks = [Depends(check_form)] if method == "POST" else []
        router.add_api_route(
            path, handler, methods=[method], include_in_schema=False, dependencies=checks, response_class=Response
        )
        return handler

    return add


def parse_as(model: type[Model], values: Mapping[str, object]) -> Model:
    """Parse `values` of an address or a form as `model`, with the API's error messages.

    Raises:
        RequestValidationError: a value cannot be used; the error names the field.
    """
    try:
        return model.model_validate(values, strict=False)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("query", *each["loc"])} for each in error.errors()]) from error


async def check_form(request: Request) -> None:
    """Check a form before it is read.

    Raises:
        Forbidden: it was sent by a page of another site, or not by a page of this session.
        Invalid: it holds text that cannot be stored.
    """
    if request.state.keyring is not None and not comes_from_here(request.headers):
        raise Forbidden("this form was sent by a page of another site", hint="open the page here and send it again")
    async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str):
                raise Invalid(f"`{name}`: this form accepts no files")
            check_text((name,), value)
        expected = request.state.csrf
        if expected is not None and not identity.are_equal(str(form.get(identity.FIELD, "")), expected):
            raise Forbidden(
                "this form was not sent by a page of your session", hint="reload the page and send it again"
            )


def go_to(path: str) -> Response:
    """Redirect to the page that shows the result of a form."""
    return RedirectResponse(path, 303)


def as_json(value: Any) -> Any:
    """Convert a view to the API's JSON, which templates draw and frozen pages contain."""
    return msgspec.to_builtins(value, str_keys=True)


@cache
def make_environment() -> Any:
    """Return the environment of the templates, for pages that the server draws: `docs/PAGE.md` becomes a link."""
    made = Pages().environment
    made.filters["code"] = link_documentation
    return made


_DOCUMENTATION = re.compile(r"(?<![\w/])docs/((?:[\w-]+/)*[\w-]+\.md(?:#[\w-]+)?)")


def link_documentation(text: object) -> Markup:
    """Mark up as `mark_code` does, with each mention of a page such as `docs/how-to/api.md#tags` as a link to it."""
    return Markup(_DOCUMENTATION.sub(r'<a href="/help/\1">docs/\1</a>', str(mark_code(text))))  # noqa: S704 - escaped


_NOTHING_CALLED = re.compile(r"no (\w+) ['\"]")
"""How `shared.storage.database` begins the message about a name that does not exist."""
_FIELD = re.compile(r"`([^`]+)`: ")
MOST_CHECKS = 20
"""Upper bound of the checks of one form; each takes time that grows with its fields."""

T = TypeVar("T")


class FormResult(NamedTuple):
    """The result of a form: `value`, or error `messages`."""

    value: object
    messages: dict[str, str]
    """Messages by field; those under "" belong to no single field."""
    status: int = 200
    error: Exception | None = None

    def others(self, fields: Collection[str]) -> dict[str, str]:
        """Return the messages that belong to none of these fields."""
        return {field: words for field, words in self.messages.items() if field not in fields}


async def try_form(answer: Callable[[], Awaitable[object]]) -> FormResult:
    """Return what `answer` returns, or the errors of the form that it read."""
    try:
        return FormResult(await answer(), {})
    except RequestValidationError as error:
        return FormResult(None, list_field_messages(error), 422, error)
    except MathragError as error:
        return FormResult(None, _make_message(error), error.status, error)


def list_messages(values: Mapping[str, str], check: Callable[[dict[str, str]], object]) -> dict[str, str]:
    """Return the errors by field: `check` stops at the first wrong field, so it is repeated without that field, at most
    `MOST_CHECKS` times.
    """
    left, found = dict(values), dict[str, str]()
    for _ in range(MOST_CHECKS):
        try:
            check(left)
        except RequestValidationError as error:
            new = list_field_messages(error)
        except MathragError as error:
            new = _make_message(error)
        else:
            return found
        found = new | found
        if not new.keys() & left.keys():
            return found
        left = {name: value for name, value in left.items() if name not in new}
    return {"": "there may be further errors: correct these first"} | found


def _make_message(error: MathragError) -> dict[str, str]:
    problem = make_problem(error, "")
    match = _FIELD.match(problem.detail) or _NOTHING_CALLED.match(problem.detail)
    words = _FIELD.sub("", problem.detail, count=1)
    return {match[1] if match else "": f"{words}. {problem.hint}" if problem.hint else words}
