"""Limits of the operator on what users may request."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Limits on requests. Beyond them, a request is answered 413, or 429 if too many run at once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    body_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum body of a request that is not an upload, in bytes."""
    upload_bytes: int = Field(default=256 << 20, gt=0)
    """Maximum upload, in bytes."""
    upload_rows: int = Field(default=1_000_000, gt=0)
    """Maximum number of documents, items or facts of an upload."""
    line_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum length of a line of an upload, or of the text of a table's row, in bytes."""
    decompressed_bytes: int = Field(default=1 << 30, gt=0)
    """Maximum size, after decompression, of a Parquet file's columns, a compressed graph or the samples of an archived
    log, in bytes; the file may be much smaller."""
    uploads: int = Field(default=4, gt=0)
    """Maximum number of simultaneous uploads. Each Parquet file, and each log of inspect_ai or FlashRAG, is read in its
    own process, which takes at most 512 MiB."""
    training_exports: int = Field(default=2, gt=0)
    """Maximum number of simultaneous exports of training data; each holds its graph in memory."""
    live_jobs: int = Field(default=200, gt=0)
    """Maximum number of jobs that have not ended."""
    samples: int = Field(default=1_000_000, gt=0)
    """Maximum number of samples of a job: items times repeats."""
    samples_per_key: int = Field(default=0, ge=0)
    """Maximum number of samples of one API key's jobs that have not ended. 0: no limit."""
    gpu_s_per_key: float = Field(default=0.0, ge=0)
    """Maximum GPU time of one API key in 24 hours, in seconds: the time in which models worked on at least one of the
    calls that its jobs made. Beyond it, new jobs of the key are refused; accepted ones go on. 0: no limit."""
    cells: int = Field(default=1000, gt=0)
    """Maximum number of cells in an experiment's grid (docs/how-to/experiments.md)."""
    event_streams: int = Field(default=100, gt=0)
    """Maximum number of open streams of job events."""
    page_streams: int = Field(default=200, gt=0)
    """Maximum number of pages that update live. One more gets 503 for its updates, and keeps showing what it showed
    first."""
    connections: int = Field(default=512, gt=0)
    """Maximum number of open connections, for the API and for each guard and retriever. For one more, the one that has
    waited longest for a request is closed; if all are in use, it is answered 503 and closed. Keep it below half of the
    process's limit of open files (`ulimit -n`)."""
    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Maximum size of a request's header with its first line, in bytes; a longer one is answered 431. Trailers, and the
    bytes between the chunks of a body, have the same limit."""
    header_fields: int = Field(default=100, gt=0)
    """Maximum number of fields in a request's header; more are answered 431."""
    header_s: float = Field(default=10.0, gt=0)
    """Maximum time for a request's header to arrive, in seconds; then the request is answered 408."""
    idle_s: float = Field(default=30.0, gt=0)
    """Maximum time without a byte of the body, in seconds; then the request is answered 408. If the client reads
    nothing of an answer for this time, the connection is closed."""
    body_bytes_s: int = Field(default=64 << 10, ge=0)
    """Minimum speed of a body, in bytes per second, on average over each period of twice `idle_s`; a slower one is
    answered 408, so that it gives its place back (`uploads`). 0: no minimum."""
