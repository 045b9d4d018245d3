"""Remove the reasoning of a model from its reply: `<think>...</think>` and similar blocks."""

import re

_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)"
# Granite and models trained on question-and-response pairs put a line between reasoning and answer.
_RESPONSE = r"^[#*\s]{1,8}(?:Final\s+)?Response[\s:*]*$|^Here is my response:"
_TAG = re.compile(
    rf"(?P<open><{_NAMES}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|channel\|>(?:analysis|commentary)\b[^<]*<\|message\|>)"
    rf"|(?P<close></{_NAMES}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|channel\|>final\b[^<]*<\|message\|>|assistantfinal|{_RESPONSE})",
    re.IGNORECASE | re.MULTILINE,
)
_MARKS = re.compile(
    r"<\|(?:start|end|return|call|message|channel|begin_of_solution|end_of_solution)\|>(?:assistant\b)?"
)
"""Matches the start of the final channel in OpenAI's harmony format, and of the answer after a thought."""


def remove_reasoning(text: str) -> str:
    """Return `text` without its reasoning blocks, stripped; time is linear in the text.

    A block without a closing tag, as in a truncated reply, extends to the end. Text before a closing tag without an
    opening tag is also reasoning: the templates of some models write the opening tag into the prompt.
    """
    kept: list[str] = []
    start, inside = 0, False
    for tag in _TAG.finditer(text):
        if tag["open"]:
            if not inside:
                kept.append(text[start : tag.start()])
            inside = True
        else:
            if not inside:
                kept.clear()
            start, inside = tag.end(), False
    if not inside:
        kept.append(text[start:])
    return _MARKS.sub("", "".join(kept)).strip()
