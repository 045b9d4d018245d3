"""Render requests as the prompts that models get."""

from collections.abc import Mapping

from shared.calls import DocumentRef, Prompt, Request, SlotValue
from shared.rag.prompts import Value, make_template_reference, render, template
from shared.replies import Document


class TemplateChanged(Exception):
    """The installed template differs from the one that a queued call names."""


def render_request(request: Request, library: Mapping[str, Document]) -> Prompt:
    """Return the prompt of a request.

    Raises:
        TemplateChanged: the installed template is not the one that the request names.
    """
    if request.messages:
        return request.messages
    name = request.template.partition("@")[0]
    if make_template_reference(name) != request.template:
        raise TemplateChanged(f"the request names {request.template}, installed is {make_template_reference(name)}")
    values = {slot: _value(value, library) for slot, value in request.values.items() if value is not None}
    return render(template(name), values)


def _value(value: SlotValue, library: Mapping[str, Document]) -> Value:
    if isinstance(value, str):
        return value
    return library[value.doc] if isinstance(value, DocumentRef) else [library[ref.doc] for ref in value]


def list_references(request: Request) -> list[DocumentRef]:
    """Return the documents that a request's prompt contains."""
    values = request.values.values()
    single = [value for value in values if isinstance(value, DocumentRef)]
    return single + [ref for value in values if isinstance(value, list) for ref in value]
