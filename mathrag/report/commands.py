"""The commands that ask for the same job again."""

import shlex
from typing import Any

import msgspec

from shared.contracts.changed_params import changed
from shared.contracts.records import JobRecord
from shared.pipelines import registry


def again(job: Any, record: JobRecord, models: dict[str, str]) -> str:
    """`mathrag job submit` with every parameter that is not its default, and every model by role.

    Nothing of other jobs is reused: a reproduction that reads the replies of the original has shown nothing.
    """
    words = ["mathrag", "job", "submit", "--name", f"{job['name']}-again", "--dataset", record.dataset.name]
    words += ["--pipeline", record.pipeline, "--repeats", str(record.repeats), "--reuse", "none"]
    if limit := record.code.get("limit"):
        words += ["--limit", str(limit)]
    if record.corpus is not None:
        words += ["--corpus", record.corpus.name]
    for key, value in changed(_accepted(record.pipeline, job["params"])):
        words += ["--set", f"{key}={msgspec.json.encode(value).decode()}"]
    for role, name in models.items():
        words += ["--model", f"{role}={name}"]
    return shlex.join(words)


def _accepted(pipeline: str, params: Any) -> Any:
    """Without what the pipeline does not read, such as a value of the configuration: a submit refuses it."""
    return registry.get(pipeline).only_read(params) if pipeline in registry.names() else params
