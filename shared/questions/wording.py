"""Word a question, such as "On 2014-11-11, Malaysia make statement whom or what?"."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from shared.questions.leads import Side
from shared.rules import sentences
from shared.samples import Phrase, TimeUnit

SLOT = re.compile(r"\{([^{}]*)\}")
TIMES: Mapping[TimeUnit, str] = {"day": "On {time}, ", "step": "At {time}, "}


class QuestionTemplates(NamedTuple):
    """The two questions of a relation, with slots in braces."""

    object: str
    """Asks for the object; has the slot `{subject}` and may have `{time}`."""
    subject: str
    """Asks for the subject; has the slot `{object}` and may have `{time}`."""


def check(template: str, slot: str, *, timed: bool) -> None:
    """Check that the template has this slot, and no other but `time` if facts have times.

    Raises:
        ValueError: if it does not; the message is a predicate whose subject is the template.
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
    """Words questions about a graph."""

    phrases: Mapping[str, Phrase]
    """Phrases by relation; a relation without one is called by its name."""
    templates: Mapping[str, QuestionTemplates]
    """Templates by relation that replace the default ones."""
    unit: TimeUnit | None

    def question(self, relation: str, side: Side, entity: str, time: str | None) -> str:
        """Word the question for this side; if the template has no slot for the time, the time goes in front."""
        template = self.templates.get(relation) or _template(sentences.phrase(relation, self.phrases.get(relation)))
        form = template.object if side == "object" else template.subject
        if self.unit is not None and "{time}" not in form:
            form = TIMES[self.unit] + form
        slots = {"subject": sentences.shown(entity), "object": sentences.shown(entity), "time": time or ""}
        return SLOT.sub(lambda found: slots.get(found[1], found[0]), form)


def _template(phrase: str) -> QuestionTemplates:
    return QuestionTemplates(f"{{subject}} {phrase} whom or what?", f"Who or what {phrase} {{object}}?")
