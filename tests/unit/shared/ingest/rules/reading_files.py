"""Files of rules as uploads."""

import io

from shared.ingest.rules import reading
from shared.ingest.rules.limits import DEFAULT, RuleFileLimits
from shared.ingest.rules.reading import Format, Incoming


def incoming(raw: bytes, named: Format = Format.AUTO, limits: RuleFileLimits = DEFAULT) -> Incoming:
    """What a file of these bytes holds."""
    return reading.read(io.BufferedReader(io.BytesIO(raw)), "FILE", named, limits)  # type: ignore[arg-type]
