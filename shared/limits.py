"""Limits that the operator sets to what users may ask for."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """How much may be asked for; beyond it a request is answered 413, or 429 where it is about how many at once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    body_bytes: int = Field(default=1 << 20, gt=0)
    """Largest body of a request that is no upload."""
    upload_bytes: int = Field(default=256 << 20, gt=0)
    """Largest upload."""
    upload_rows: int = Field(default=1_000_000, gt=0)
    """Documents, items or facts of one upload."""
    line_bytes: int = Field(default=1 << 20, gt=0)
    """One line of an upload, or one row of its text."""
    decompressed_bytes: int = Field(default=1 << 30, gt=0)
    """What the columns of a Parquet file, or a packed graph, may become when unpacked; the file may be much smaller."""
    uploads: int = Field(default=4, gt=0)
    """Uploads at once; a Parquet file is unpacked by a process of its own, which takes 512 MiB at most."""
    live_jobs: int = Field(default=200, gt=0)
    """Jobs that have not ended."""
    samples: int = Field(default=1_000_000, gt=0)
    """Items times repeats of one job."""
    cells: int = Field(default=1000, gt=0)
    """Cells of an experiment's grid (docs/experiments.md)."""
    event_streams: int = Field(default=100, gt=0)
    """Open streams of job events."""
    page_streams: int = Field(default=200, gt=0)
    """Pages that are kept up to date at once; one more is answered 503, and shows what it showed when it was opened."""
    connections: int = Field(default=512, gt=0)
    """Open connections of the API, and of each guard and retriever; one more is answered 503 and closed. Keep it below
    half of the process's open files (`ulimit -n`)."""
    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Request line and header of one request; a longer one is answered 431. The same bound holds for trailers and for
    what stands between the chunks of a body."""
    header_fields: int = Field(default=100, gt=0)
    """Fields of one request's header; more are answered 431."""
    header_s: float = Field(default=10.0, gt=0)
    """Longest time in which the whole header arrives; later it is answered 408."""
    idle_s: float = Field(default=30.0, gt=0)
    """Longest time in which nothing of a body arrives, then 408; or in which the reader of an answer takes nothing of
    it, then the connection is closed."""
    body_bytes_s: int = Field(default=4096, ge=0)
    """Slowest average of a body that takes longer than `idle_s`; slower is answered 408; 0: no bound."""
