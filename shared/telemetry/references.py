"""Which span stands for what. Jobs and samples have ids of their own, so that anybody can link to them unasked."""

import re
import uuid
from typing import NamedTuple

TRACEPARENT = re.compile(r"[\da-f]{2}-(?P<trace>[\da-f]{32})-(?P<span>[\da-f]{16})-[\da-f]{2}")


class SpanRef(NamedTuple):
    """A span by its two ids."""

    trace: int
    span: int

    @property
    def trace_id(self) -> str:
        """As it is written: 32 hex digits."""
        return f"{self.trace:032x}"


def job(public_id: uuid.UUID) -> SpanRef:
    """A job's trace has the job's id; its span has the lower half of it."""
    return SpanRef(public_id.int, public_id.int & (1 << 64) - 1)


def sample(public_id: uuid.UUID, sample_id: int) -> SpanRef:
    """A sample's span, in its job's trace, has the id of the sample's row.

    It is never the job's own: the lower half of a random UUID begins with a set bit, and row ids do not.
    """
    return SpanRef(public_id.int, sample_id)


def of_header(traceparent: str | None) -> SpanRef | None:
    """The span that a W3C `traceparent` names; None for anything else."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return SpanRef(int(found["trace"], 16), int(found["span"], 16)) if found else None
