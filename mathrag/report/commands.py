"""Writes the command that submits a reported job again."""

import shlex
from typing import Any

import msgspec

from shared.params import list_changes
from shared.pipelines import registry
from shared.records import JobRecord


def submit_again_command(job: Any, record: JobRecord, models: dict[str, str]) -> str:
    """Return `mathrag job submit` with every parameter that differs from its default, and every model by role.

    The command has `--reuse none`: a reproduction that reused the original's replies would prove nothing.
    """
    words = ["mathrag", "job", "submit", "--name", f"{job['name']}-again", "--dataset", record.dataset.name]
    words += ["--pipeline", record.pipeline, "--repeats", str(record.repeats), "--reuse", "none"]
    if limit := record.code.get("limit"):
        words += ["--limit", str(limit)]
    if record.corpus is not None:
        words += ["--corpus", record.corpus.name]
    for key, value in list_changes(_select_accepted(record.pipeline, job["params"])):
        words += ["--set", f"{key}={msgspec.json.encode(value).decode()}"]
    for role, name in models.items():
        words += ["--model", f"{role}={name}"]
    return shlex.join(words)


def _select_accepted(pipeline: str, params: Any) -> Any:
    """Return only the parameters that the pipeline reads: a submission refuses others."""
    return registry.get(pipeline).select_read(params) if pipeline in registry.names() else params
