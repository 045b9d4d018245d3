"""Requests for experiments, which are grids of jobs."""

from collections.abc import Mapping, Sequence

from mathrag.client.request import Json, Page, Request, make_idempotency_header, segment

PATH = "/v1/experiments"
ENDED = ("completed", "failed", "cancelled", "purged")


def make_path(reference: str) -> str:
    """Return the path of an experiment, which is given by its name, its id, or the first characters of the id."""
    return f"{PATH}/{segment(reference)}"


def plan(document: Mapping[str, object]) -> Request[Json]:
    """Estimate the jobs, samples, calls and time of an experiment without submitting it."""
    return Request(method="POST", path=f"{PATH}/plan", body=document, is_idempotent=True)


def submit(document: Mapping[str, object], *, key: str | None = None) -> Request[Json]:
    """Submit all jobs of an experiment, or none if one is invalid.

    Args:
        document: the fields of a YAML file for `mathrag experiment run` (docs/how-to/experiments.md).
        key: idempotency key; the same key returns the same experiment, None submits a new one.
    """
    return Request(method="POST", path=PATH, body=document, headers=make_idempotency_header(key))


def pilot(
    dataset: str,
    corpus: str | None = None,
    *,
    name: str | None = None,
    questions: int = 40,
    seed: int = 0,
    variants: Sequence[Mapping[str, object]] = (),
    params: Mapping[str, object] | None = None,
    models: Mapping[str, str] | None = None,
    key: str | None = None,
) -> Request[Json]:
    """Try several pipelines on a few questions of a dataset; the report of this experiment recommends one of them.

    Args:
        dataset: the questions; those that are not drawn become another dataset, which `rest` in the answer names.
        corpus: the corpus to search.
        name: name of the experiment and of the dataset of the drawn questions; None: `pilot-DATASET`.
        questions: number of questions to draw, 20 to 1000.
        seed: random seed.
        variants: the variants to try, as in an experiment; by default all candidates that this installation can run.
        params: parameters of every job that reads them.
        models: model names by role.
        key: idempotency key; the same key returns the same experiment, None submits a new one.
    """
    body = {
        "dataset": dataset, "corpus": corpus, "name": name, "questions": questions, "seed": seed,
        "variants": [*variants], "params": params or {}, "models": models or {},
    }  # fmt: skip
    return Request(method="POST", path=f"{PATH}/pilot", body=body, headers=make_idempotency_header(key))


def list_experiments() -> Request[Page[Json]]:
    """List all experiments, newest first."""
    return Request(path=PATH)


def get(experiment: str) -> Request[Json]:
    """Fetch an experiment with the state of every cell."""
    return Request(path=make_path(experiment))


def report(experiment: str, *, measure: str | None = None) -> Request[Json]:
    """Fetch the report: a row for each cell, and the comparisons of cells."""
    return Request(path=f"{make_path(experiment)}/report", query={"measure": measure})


def cancel(experiment: str) -> Request[Json]:
    """Cancel all jobs of an experiment that have not ended."""
    return Request(method="POST", path=f"{make_path(experiment)}/cancel", is_idempotent=True)


def resume(experiment: str) -> Request[Json]:
    """Resume the paused jobs of an experiment, and submit the missing ones."""
    return Request(method="POST", path=f"{make_path(experiment)}/resume", is_idempotent=True)
