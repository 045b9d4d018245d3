"""Prompt templates: packaged, versioned, and hashed into every call that uses them.

A slot is written {{name}} in a template's text, which is scanned once: values are put in as they are, so that braces
and backslashes in mathematics, or a question that says {{context}}, mean nothing special.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import msgspec

from shared import canonical
from shared.replies import Document

Value = str | Document | Sequence[Document]
"""What fills a slot: a text, a document, or documents in prompt order."""

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


class TemplateError(ValueError):
    """A template, or a use of one, is wrong: the message names the template, the slot and the fix."""


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt with named slots. An optional slot that is not given takes its default, or nothing at all."""

    id: str
    version: int
    """Raised by hand when documents are rendered differently: the text alone would not show it."""
    text: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    defaults: dict[str, str] = {}

    @property
    def slots(self) -> tuple[str, ...]:
        """Return all slots by name, the required ones first."""
        return self.required + self.optional

    @property
    def hash(self) -> str:
        """Return the SHA-256 in hex over id, version, text and defaults in canonical form."""
        return canonical.digest([self.id, self.version, self.text, self.defaults]).hex()

    def __post_init__(self) -> None:
        """Raise TemplateError unless the text uses exactly the declared slots."""
        used = set(_SLOT.findall(self.text))
        if used != set(self.slots):
            raise TemplateError(f"template {self.id!r} declares {sorted(self.slots)} but its text uses {sorted(used)}")
        if not self.defaults.keys() <= set(self.optional):
            raise TemplateError(f"template {self.id!r} has defaults for slots that are not optional")


_adopted: dict[str, Template] = {}
"""Templates of the operator's folder."""


def adopt(found: Template) -> None:
    """Know a template of the operator's folder by its id, which is none of the packaged ones."""
    _adopted[found.id] = found
    template.cache_clear()
    make_template_reference.cache_clear()


@cache
def template(template_id: str) -> Template:
    """Return the packaged template with this id.

    Raises:
        TemplateError: for an unknown id; the message lists the known ones.
    """
    if template_id in _adopted:
        return _adopted[template_id]
    if template_id not in list_packaged_ids():
        raise TemplateError(f"no template {template_id!r}; there are: {', '.join(list_template_ids())}")
    source = resources.files(__package__).joinpath("templates", f"{template_id}.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(source), Template)


def list_template_ids() -> tuple[str, ...]:
    """Return the ids of all packaged templates, sorted."""
    return (*list_packaged_ids(), *sorted(_adopted))


@cache
def list_packaged_ids() -> tuple[str, ...]:
    """List the ids of all packaged templates, sorted."""
    files = resources.files(__package__).joinpath("templates").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def render(template: Template, values: Mapping[str, Value]) -> str:
    """Fill every slot of the template's text.

    A document reads "Problem: ...", a new line, "Solution: ..." (its text alone if it has no problem); in a list each
    is followed by an empty line.

    Raises:
        TemplateError: for a value without a slot, or a required slot without a value.
    """
    _check(template, values)
    texts = {**template.defaults, **{slot: _as_text(value) for slot, value in values.items()}}
    return _SLOT.sub(lambda match: texts.get(match[1], ""), template.text)


def show_documents(documents: Sequence[Document]) -> str:
    """Format documents as prompts show a list: each followed by an empty line."""
    return "".join(f"{_show_document(document)}\n\n" for document in documents)


def _check(template: Template, values: Mapping[str, Value]) -> None:
    undeclared = sorted(values.keys() - set(template.slots))
    if undeclared:
        slots = ", ".join(template.slots)
        raise TemplateError(f"template {template.id!r} has no slot {undeclared[0]!r}; its slots are: {slots}")
    missing = [slot for slot in template.required if slot not in values]
    if missing:
        raise TemplateError(f"template {template.id!r} needs a value for its slot {missing[0]!r}")


def _as_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Document):
        return _show_document(value)
    return show_documents(value)


def _show_document(document: Document) -> str:
    if not document.problem:
        return document.text
    return f"Problem: {document.problem}\nSolution: {document.text}"


@cache
def make_template_reference(template_id: str) -> str:
    """Return `id@hash`: requests name their template so, and a changed text makes another call."""
    return f"{template_id}@{template(template_id).hash}"
