"""How a page is written: what a key must allow stands above its function, a template draws what the function read."""

import gzip
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ValidationError

from services.orchestrator.access import sessions
from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.access.values import check_text
from services.orchestrator.web.navigation import LINKS, current
from shared.contracts.api_keys import Scope, allows
from shared.errors import Forbidden, Invalid
from shared.pages.pages import Pages

Handler = TypeVar("Handler", bound=Callable[..., Any])
Model = TypeVar("Model", bound=BaseModel)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SMALLEST_PACKED = 1000
"""Bytes below which compressing saves nothing."""


class Visit:
    """Somebody's request for a page, and how it is answered."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.actor: str = request.state.actor

    def may(self, scope: str) -> bool:
        """Whether this visitor may do what asks for `scope`: other buttons are not shown."""
        return allows(self.request.state.scopes, Scope(scope))

    def query(self, model: type[Model]) -> Model:
        """The address's query as the API reads it; fields that a form left empty are not set.

        Raises:
            RequestValidationError: a value cannot be used; it names the field.
        """
        return parsed(model, {name: value for name, value in self.request.query_params.items() if value})

    def show(self, template: str, *, title: str, json: str | None = None, status: int = 200, **values: Any) -> Response:
        """The page that `template` draws of `values`.

        Args:
            title: of the page, and its heading where the template has no other.
            json: path of the same data in the API.
        """
        path = self.request.url.path
        drawn = environment().get_template(template).render(
            title=title, json=json, visit=self, csrf=self.request.state.csrf, nav=LINKS, here=current(path), path=path,
            signed_in=self.request.state.csrf is not None, **values,
        )  # fmt: skip
        return _answer(self.request, drawn, status)


def _visit(request: Request) -> Visit:
    return Visit(request)


Visitor = Annotated[Visit, Depends(_visit)]
"""The parameter of a page."""


def page(
    router: APIRouter, path: str, scope: Scope | None = Scope.READ, *, method: str = "GET"
) -> Callable[[Handler], Handler]:
    """Answer `method` `path` with the page below; a form (`POST`) must come from a page of the same session."""

    def add(handler: Handler) -> Handler:
        declare_scope(handler, scope)
        checks = [Depends(checked_form)] if method == "POST" else []
        router.add_api_route(
            path, handler, methods=[method], include_in_schema=False, dependencies=checks, response_class=Response
        )
        return handler

    return add


def parsed(model: type[Model], values: Mapping[str, object]) -> Model:
    """`values` of an address or a form as `model`, with the API's words for what is wrong.

    Raises:
        RequestValidationError: a value cannot be used; it names the field.
    """
    try:
        return model.model_validate(values, strict=False)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("query", *each["loc"])} for each in error.errors()]) from error


async def checked_form(request: Request) -> None:
    """Before every form is read.

    Raises:
        Forbidden: it was not sent by a page of this session.
        Invalid: it holds what is no text.
    """
    async with request.form(max_files=0, max_fields=2000) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str):
                raise Invalid(f"`{name}`: files are not taken here")
            check_text((name,), value)
        expected = request.state.csrf
        if expected is not None and not sessions.same(str(form.get(sessions.FIELD, "")), expected):
            raise Forbidden("this form is not from a page of your session", hint="reload the page and send it again")


def go_to(path: str) -> Response:
    """After a form: the page that shows what became of it."""
    return RedirectResponse(path, 303)


def as_json(value: Any) -> Any:
    """A view as the API answers it: what templates draw, and what a frozen page has."""
    return msgspec.to_builtins(value, str_keys=True)


@cache
def environment() -> Any:
    """The templates, for pages that a server draws."""
    return Pages().environment


def _answer(request: Request, drawn: str, status: int) -> Response:
    body = drawn.encode("utf-8", "replace")
    # With "no-referrer" a browser says of its own forms that they come from nowhere, and they are refused.
    headers = {
        "Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Vary": "Accept-Encoding, Cookie"
    }  # fmt: skip
    if len(body) >= SMALLEST_PACKED and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 3), "gzip"
    return Response(body, status, headers, "text/html; charset=utf-8")
