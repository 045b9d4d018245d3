"""Takes secrets out of text that leaves the process: passwords in URLs, bearer keys."""

import re

HIDDEN = "***"
PASSWORD = re.compile(r"(?P<before>\w://[^\s/:@]*:)[^\s/@]+(?=@)")
BEARER = re.compile(r"(?P<before>\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE)


def redacted(text: str) -> str:
    """`text` without secrets; as it was where it holds none."""
    if "://" in text:
        text = PASSWORD.sub(rf"\g<before>{HIDDEN}", text)
    return BEARER.sub(rf"\g<before>{HIDDEN}", text)
