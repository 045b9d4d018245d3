"""Takes secrets out of text that leaves the process: passwords in URLs, bearer tokens, API keys."""

import re

HIDDEN = "***"
PASSWORD = re.compile(r"(?P<shown>\w://[^\s/:@]*:)[^\s/@]+(?=@)")
BEARER = re.compile(r"(?P<shown>\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE)
KEY = re.compile(r"(?P<shown>\bmrg_[\da-f]{8}_)[\da-f]{64}\b")
"""An API key of ours; its first part tells keys apart and is no secret."""


def redacted(text: str) -> str:
    """`text` without secrets; as it was where it holds none."""
    for secret in (PASSWORD, BEARER, KEY):
        text = secret.sub(rf"\g<shown>{HIDDEN}", text)
    return text
