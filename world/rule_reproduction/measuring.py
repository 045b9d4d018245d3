"""Run the jobs of a graph's arms, and read their scores, paired tests, cost and audits from the service."""

from collections.abc import Iterable, Mapping
from typing import Any

from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.service import summarise_audit
from shared import canonical
from world import experiments
from world.rule_reproduction.serving import GENERATORS
from world.rule_reproduction.setting import MEASURES, Arm, Setting

Json = dict[str, Any]
Jobs = Mapping[str, str]
"""Ids of jobs by their arm."""
KEPT = ("items", "gained", "lost", "p", "adjusted", "separable", "difference", "words")
"""Fields of a pair to keep."""
COST = ("seconds", "model_loads", "calls_made", "calls_reused", "failures", "fallbacks", "truncated")
"""Fields of a job's report to keep."""


def document(params: Json, arms: Iterable[Arm], names: Mapping[str, str], models: object) -> Json:
    """Write the arms as the body of `POST /v1/experiments`; its name has a digest of all inputs.

    Args:
        params: of all of them.
        names: what the service calls the graph (`corpus`, `rules`) and its questions (`dataset`).
        models: the digests of everything that answers.
    """
    request = {
        "datasets": [{"dataset": names["dataset"], "corpus": names["corpus"]}],
        "variants": [
            {"name": arm.name, "pipeline": arm.pipeline, "params": arm.params,
             "models": {"generate": GENERATORS[arm.generator]}}
            for arm in arms
        ],
        "params": {**params, "rules": names["rules"]},
    }  # fmt: skip
    return {"name": f"{names['corpus']}-{canonical.digest([request, models]).hex()[:8]}", **request}


def run(client: Client, asked: Json, label: str) -> dict[str, str]:
    """Run the experiment; return jobs by arm once all have ended.

    Raises:
        Failed: some did not complete.
    """
    found = experiments.run(client, asked, label)
    return {row["variant"]: row["job"] for row in found["report"]["rows"]}


def read(client: Client, setting: Setting, jobs: Jobs) -> Json:
    """Read the results of a graph's jobs.

    Raises:
        Failed: the service cannot say.
    """
    scores: Json = {}
    pairs: Json = {}
    for measure in MEASURES:
        pairs[measure] = {}
        for baseline in setting.baselines:
            compared = client.send(api.compare(list(jobs.values()), jobs[baseline], measure))
            arms = _arms(compared, jobs)
            pairs[measure][baseline] = {arms[each["left"]]: _keep(each, KEPT) for each in compared["pairs"]}
            scores[measure] = {arms[each["name"]]: _score(each) for each in compared["jobs"]}
    return {"scores": scores, "pairs": pairs, "arms": {arm: _job(client, job) for arm, job in jobs.items()}}


def _arms(compared: Json, jobs: Jobs) -> dict[str, str]:
    """Return arms by the names of their jobs in a comparison."""
    names = {job: arm for arm, job in jobs.items()}
    return {each["name"]: names[each["jobs"][0]] for each in compared["jobs"]}


def _score(compared: Json) -> Json:
    return {"items": compared["items"], **_keep(compared["measured"], ("value", "low", "high"))}


def _job(client: Client, job: str) -> Json:
    audit = client.send(api.audit(job))
    return {"job": job, "audit": summarise_audit(audit["violations"]), **_keep(client.send(api.report(job)), COST)}


def _keep(of: Json, fields: Iterable[str]) -> Json:
    return {field: of[field] for field in fields}
