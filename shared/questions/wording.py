"""The words of a question: "On 2014-11-11, Malaysia make statement whom or what?"."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from shared.contracts.graphs import Phrase, TimeUnit
from shared.questions.leads import Side
from shared.rules import sentences

SLOT = re.compile(r"\{([^{}]*)\}")
TIMES: Mapping[TimeUnit, str] = {"day": "On {time}, ", "step": "At {time}, "}


class Template(NamedTuple):
    """How both questions of a relation are put, with slots in braces."""

    object: str
    """Asks for the object: with `{subject}`, and maybe `{time}`."""
    subject: str
    """Asks for the subject: with `{object}`, and maybe `{time}`."""


def check(template: str, slot: str, *, timed: bool) -> None:
    """Return if the template has this slot, and no other but `time` where facts have times.

    Raises:
        ValueError: what is wrong with it.
    """
    slots = SLOT.findall(template)
    known = (slot, "time") if timed else (slot,)
    unknown = next((each for each in slots if each not in known), None)
    if unknown is not None:
        raise ValueError(
            f"has the slot {{{unknown[:80]}}}; it may have {' and '.join(f'{{{each}}}' for each in known)}"
        )
    if slot not in slots:
        raise ValueError(f"lacks the slot {{{slot}}}")


class Wording(NamedTuple):
    """The words of a graph."""

    phrases: Mapping[str, Phrase]
    """By relation; others are called by their names."""
    templates: Mapping[str, Template]
    """By relation, in the place of ours."""
    unit: TimeUnit | None

    def question(self, relation: str, side: Side, entity: str, time: str | None) -> str:
        """The question for the other end; a time that the template has no slot for stands before it."""
        template = self.templates.get(relation) or _template(sentences.phrase(relation, self.phrases.get(relation)))
        form = template.object if side == "object" else template.subject
        if self.unit is not None and "{time}" not in form:
            form = TIMES[self.unit] + form
        slots = {"subject": sentences.shown(entity), "object": sentences.shown(entity), "time": time or ""}
        return SLOT.sub(lambda found: slots.get(found[1], found[0]), form)


def _template(phrase: str) -> Template:
    return Template(f"{{subject}} {phrase} whom or what?", f"Who or what {phrase} {{object}}?")
