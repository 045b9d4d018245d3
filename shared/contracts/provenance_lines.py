"""The lines of a job's provenance file."""

import msgspec

Texts = dict[str, str]
"""Maps hashes, in hex, to texts."""


class JobLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="job"):
    """The first line of the file; the first sample's line refers to its hash."""

    hash: str
    record: str
    """A JSON text; `hash` is the SHA-256 of its bytes."""
    texts: Texts


class SampleLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="sample"):
    """One sample; `hash` is the SHA-256 over the 32 bytes of `previous`, followed by the text `record`."""

    sequence: int
    hash: str
    previous: str
    record: str
    texts: Texts
    """Texts whose hashes the record has, by name; each hash is the SHA-256 of its text."""


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line of the file; without it the file is incomplete."""

    records: int
    chain: str
    """Hash of the last sample's line, which the job stores."""
