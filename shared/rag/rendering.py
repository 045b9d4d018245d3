"""Requests rendered as the prompts that models are sent."""

from collections.abc import Mapping

from shared.contracts.documents import Document
from shared.contracts.requests import DocumentRef, Request, SlotValue
from shared.rag.prompts import Value, render, template, template_reference


class TemplateChanged(Exception):
    """The template of a queued call is not the one that is installed."""


def rendered(request: Request, library: Mapping[str, Document]) -> str:
    """The prompt of a request.

    Raises:
        TemplateChanged: the installed template is not the one that the request names.
    """
    name = request.template.partition("@")[0]
    if template_reference(name) != request.template:
        raise TemplateChanged(f"the request names {request.template}, installed is {template_reference(name)}")
    values = {slot: _value(value, library) for slot, value in request.values.items() if value is not None}
    return render(template(name), values)


def _value(value: SlotValue, library: Mapping[str, Document]) -> Value:
    if isinstance(value, str):
        return value
    return library[value.doc] if isinstance(value, DocumentRef) else [library[ref.doc] for ref in value]


def references(request: Request) -> list[DocumentRef]:
    """The documents that a request's prompt is made from."""
    values = request.values.values()
    single = [value for value in values if isinstance(value, DocumentRef)]
    return single + [ref for value in values if isinstance(value, list) for ref in value]
