"""Retries of failed requests: only harmless ones, with exponential back-off or as the server's `Retry-After` says."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mathrag.client.errors import Failed, Unreachable
from mathrag.client.request import Request

RETRIES = 7
"""Number of retries; their waits add up to about 45 s, in which a restarted service is back."""
FIRST_S = 0.5
LONGEST_S = 30.0
"""Longest wait in seconds; if the server asks for more, the error is raised at once."""
REFUSED_FOR_NOW = 429
"""Status of a request that was refused for now: nothing was done, so any request may be repeated."""
BUSY = (502, 503, 504)
"""Statuses of a server or proxy that is unavailable or overloaded; the request may have been carried out."""


class Tries:
    """Counts the tries of one request.

    A server that has never answered is not waited for: its address is wrong, or it was not started.
    """

    def __init__(self, request: Request[Any], retries: int, *, has_answered: bool) -> None:
        self._request = request
        self._left = retries
        self._has_answered = has_answered
        self._made = 0

    def delay(self, failed: Failed) -> float:
        """Return the seconds until the next try.

        Raises:
            Failed: `failed` itself, if there is none.
        """
        self._made += 1
        wait = self._compute_backoff() if failed.retry_after_s is None else failed.retry_after_s
        if self._made > self._left or wait > LONGEST_S or not self._may_repeat(failed):
            if self._made > 1:
                failed.add_note(f"tried {self._made} times")
            raise failed
        return wait

    def _compute_backoff(self) -> float:
        """Return the exponential back-off with random jitter, so that many clients do not return at once."""
        return min(LONGEST_S, FIRST_S * 2.0 ** (self._made - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def _may_repeat(self, failed: Failed) -> bool:
        if self._request.has_gone:
            return False
        if isinstance(failed, Unreachable):
            if failed.never_sent:
                return self._has_answered
            return self._request.is_harmless_again and not failed.ran_out_of_time
        if failed.status == REFUSED_FOR_NOW:
            return True
        return self._request.is_harmless_again and (failed.kind == "in_progress" or failed.status in BUSY)


def seconds_of(retry_after: str | None) -> float | None:
    """Parse a `Retry-After` header, in seconds or as a date, into seconds; None if it cannot be parsed."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
