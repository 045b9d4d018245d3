"""Remove secrets from text that leaves the process: passwords in URLs, bearer tokens, API keys."""

import re

HIDDEN = "***"
PASSWORD = re.compile(r"(?P<shown>\w://[^\s/:@]*:)[^\s/@]+(?=@)")
BEARER = re.compile(r"(?P<shown>\bbearer\s+)[\w.~+/=-]+", re.IGNORECASE)
KEY = re.compile(r"(?P<shown>\bmrg_[\da-f]{8}_)[\da-f]{64}\b")
"""Matches an API key of this project; its first part is public."""


def redact(text: str) -> str:
    """Return `text` without its secrets."""
    for secret in (PASSWORD, BEARER, KEY):
        text = secret.sub(rf"\g<shown>{HIDDEN}", text)
    return text
