"""Limits that the operator sets to what users may ask for."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """How much one user may ask for."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    body_bytes: int = Field(default=1 << 20, gt=0)
    """Of a request that is no upload."""
    upload_bytes: int = Field(default=256 << 20, gt=0)
    upload_rows: int = Field(default=1_000_000, gt=0)
    """Documents or items of one upload."""
    line_bytes: int = Field(default=1 << 20, gt=0)
    """One line of an upload, or one row of its text."""
    decompressed_bytes: int = Field(default=1 << 30, gt=0)
    """What the columns of a Parquet file may become when they are unpacked; the file may be much smaller."""
    uploads: int = Field(default=4, gt=0)
    """Uploads at once; each of a Parquet file has a process of at most 512 MiB beside it."""
    live_jobs: int = Field(default=200, gt=0)
    """Jobs that have not ended."""
    samples: int = Field(default=1_000_000, gt=0)
    """Items times repeats of one job."""
    cells: int = Field(default=1000, gt=0)
    """Of an experiment's grid."""
    event_streams: int = Field(default=100, gt=0)
    """Open streams of job events."""
    connections: int = Field(default=512, gt=0)
    """Open at once, of each service; one more is answered 503 and closed."""
    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Request line and header of one request."""
    header_fields: int = Field(default=100, gt=0)
    """Fields of one request's header."""
    header_s: float = Field(default=10.0, gt=0)
    """Longest time in which the whole header arrives."""
    idle_s: float = Field(default=30.0, gt=0)
    """Longest time in which nothing of a body arrives, or nothing of an answer is taken."""
    body_bytes_s: int = Field(default=4096, ge=0)
    """Slowest that a body may be, on average over more than `idle_s`; 0: as slow as it likes."""
