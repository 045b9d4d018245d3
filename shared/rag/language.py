"""Detect the language of a question by its script: prompts are written in the same language."""

import re
from typing import Literal

from shared.rag.prompts import list_template_ids
from shared.rag.prose import list_prose

Language = Literal["en", "zh"]

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z]{2,}")


def detect_language(text: str) -> Language:
    """Return `zh` if `text` has more Chinese characters than Latin words of two or more letters, else `en`.

    Formulas do not count. Languages in other scripts are `en`, the language of the prompts that there always are;
    Japanese is `zh` if it has enough kanji.
    """
    spoken = "".join(list_prose(text))
    return "zh" if len(_HAN.findall(spoken)) > len(_WORD.findall(spoken)) else "en"


def localised(template_id: str, text: str) -> str:
    """Return the id of the template in the language of `text`: `cot-zh` for `cot`, if it exists.

    Name the template by a literal: that is how a pipeline's hash knows which templates the module uses.
    """
    chinese = f"{template_id}-zh"
    return chinese if detect_language(text) == "zh" and chinese in list_template_ids() else template_id
