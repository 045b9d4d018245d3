"""References to spans. Those of jobs and samples follow from their ids, so that any process can link to them."""

import re
import uuid
from typing import NamedTuple

TRACEPARENT = re.compile(r"[\da-f]{2}-(?P<trace>[\da-f]{32})-(?P<span>[\da-f]{16})-[\da-f]{2}")


class SpanRef(NamedTuple):
    """The two ids of a span."""

    trace: int
    span: int

    @property
    def trace_id(self) -> str:
        """The trace id as 32 hex digits."""
        return f"{self.trace:032x}"


def make_job_ref(public_id: uuid.UUID) -> SpanRef:
    """Refer to a job's span: its trace has the job's id, and its span the lower half of it."""
    return SpanRef(public_id.int, public_id.int & (1 << 64) - 1)


def make_sample_ref(public_id: uuid.UUID, sample_id: int) -> SpanRef:
    """Refer to a sample's span, which is in its job's trace and has the id of the sample's row.

    It never equals the job's span id: the lower half of a random UUID begins with a set bit, and row ids do not.
    """
    return SpanRef(public_id.int, sample_id)


def parse_traceparent(traceparent: str | None) -> SpanRef | None:
    """Parse a W3C `traceparent`; None if it is missing or malformed."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return SpanRef(int(found["trace"], 16), int(found["span"], 16)) if found else None
