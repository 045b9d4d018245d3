"""Reasons why a model ended its answer, and the failures of a call."""

from shared.contracts.replies import FailureKind
from shared.redaction import redact

LENGTH = "length"
"""The answer reached the token limit or the end of the context."""
REPETITION = "repetition"
"""The server stopped a text that repeated itself."""
BROKEN_BYTE = "broken_byte"
"""The model wrote a byte that is not valid UTF-8, and the server stopped there."""
CUT = "cut"
"""The server ended the text without a reason."""
CUT_REASONS = frozenset({LENGTH, REPETITION, BROKEN_BYTE, CUT, "content_filter"})
"""Finish reasons of a text that the model did not end itself."""
AWAY_STATUSES = (429, 502, 503, 504)
"""Statuses with which a server, or a proxy before it, refuses all calls for now."""


class ChatFailed(Exception):
    """The model gave no answer; `detail` says why, without secrets, since it becomes part of the provenance."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind = kind
        self.detail = redact(detail)
        super().__init__(f"{kind.value}: {self.detail}")


class ServerAway(ChatFailed):
    """The server refuses all calls now, since it restarts, loads or is overloaded; the call itself has not failed."""

    def __init__(self, detail: str, kind: FailureKind = FailureKind.UNAVAILABLE) -> None:
        super().__init__(kind, detail)


class ServerUnreached(ServerAway):
    """No connection was made, so the server has not seen the call, which cannot have harmed it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, FailureKind.CONNECTION)
