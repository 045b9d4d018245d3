"""How either client speaks to its server."""

import os
from typing import Any

from mathrag.client.address import is_local
from shared.bearer import authorization

ANSWER_S = 60.0
SILENT_S = 45.0
"""A stream of events that says nothing for so long, not even that it is alive, is broken."""


def options(url: str, patience_s: float) -> dict[str, Any]:
    """What the HTTP client is made with; the API key is that of the environment."""
    return {
        "base_url": url,
        "timeout": patience_s,
        "headers": authorization(os.environ.get("MATHRAG_API_KEY", "").strip()),
        # A proxy of the environment must not come between us and our own machine.
        "trust_env": not is_local(url),
        # Reading the certificates of all authorities takes longer than a request that needs none of them.
        "verify": url.startswith("https:"),
    }
