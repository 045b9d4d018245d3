"""Identity and state of a plug-in: its distribution and code, and whether it can be used."""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What a plug-in adds. Its entry point is in the group `mathrag.` with the plural, unless it is a file."""

    PIPELINE = "pipeline"
    GRADER = "grader"
    DRIVER = "driver"
    READER = "reader"
    EMBEDDER = "embedder"
    RERANKER = "reranker"
    TEMPLATE = "template"
    """A prompt, in a file of the folder `plugins.templates`."""
    RUBRIC = "rubric"
    """A text of the folder `plugins.rubrics` that the judge model rates by."""

    @property
    def group(self) -> str:
        """Return the group of the kind's entry points, such as `mathrag.pipelines`."""
        return f"mathrag.{self.value}s"


class State(StrEnum):
    """Whether a plug-in can be used, and if not, why."""

    READY = "ready"
    FAILED = "import failed"
    TIMED_OUT = "import timed out"
    SHIPPED = "takes a shipped name"
    DOUBLED = "name taken twice"
    REFUSED = "refused"
    """Its entry point, its files or the imported object cannot be used; the detail says why."""
    CHANGED = "changed on disk"
    """Its files differ from those that the service imported, or it was installed after the service started."""
    MISSING = "missing"
    """A job that has not ended needs it, but it is not installed."""


class PluginPin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in as a job stores it; another version or other code is another plug-in."""

    kind: str
    """A value of `Kind`."""
    name: str
    distribution: str
    version: str
    hash: str
    """SHA-256, in hex, over the distribution's own files."""

    def __str__(self) -> str:
        """Format as in `pipeline best-of-three (mathrag-best-of-three 1.0, 5f1c0e9a77ab)`."""
        return f"{self.kind} {self.name} ({self.distribution} {self.version}, {self.hash[:12]})"
