"""Why a model ended its answer, and what can go wrong with a call of it."""

from shared.contracts.replies import FailureKind
from shared.redaction import redacted

LENGTH = "length"
"""The token limit, or the end of the context."""
REPETITION = "repetition"
"""The server stopped a text that went round in circles."""
BROKEN_BYTE = "broken_byte"
"""The model wrote a byte that is no UTF-8, and the server went no further."""
CUT = "cut"
"""The server ended the text and did not say why."""
CUTS = frozenset({LENGTH, REPETITION, BROKEN_BYTE, CUT, "content_filter"})
"""Finish reasons of a text that the model did not end itself."""
AWAY = (429, 502, 503, 504)
"""Statuses by which a server, or what stands before it, refuses everybody for now."""


class ChatFailed(Exception):
    """The model gave no answer, and why; what it says becomes part of the provenance, so it holds no secret."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind = kind
        self.detail = redacted(detail)
        super().__init__(f"{kind.value}: {self.detail}")


class Away(ChatFailed):
    """The server answers nobody now (it is restarting, loading or overloaded): no failure of this call."""

    def __init__(self, detail: str, kind: FailureKind = FailureKind.UNAVAILABLE) -> None:
        super().__init__(kind, detail)


class Unreached(Away):
    """No connection could be made: the server has not seen the call, so the call cannot have harmed it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, FailureKind.CONNECTION)
