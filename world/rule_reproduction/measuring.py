"""Jobs of a graph's arms, and what they came to: scores, paired tests, cost, audits, all as the service says it."""

from collections.abc import Iterable, Mapping
from typing import Any

from mathrag.client import jobs as api
from mathrag.client.audits import audited
from mathrag.client.client import Client
from shared.contracts import canonical
from world import experiments
from world.rule_reproduction.serving import GENERATORS
from world.rule_reproduction.setting import MEASURES, Arm, Setting

Json = dict[str, Any]
Jobs = Mapping[str, str]
"""Ids of jobs by their arm."""
KEPT = ("items", "gained", "lost", "p", "adjusted", "separable", "difference", "words")
"""Of a pair."""
COST = ("seconds", "model_loads", "calls_made", "calls_reused", "failures", "fallbacks", "truncated")
"""Of a job's report."""


def document(params: Json, arms: Iterable[Arm], names: Mapping[str, str], models: object) -> Json:
    """The arms as an experiment, as `POST /v1/experiments` takes it; its name stands for all that it depends on.

    Args:
        params: of all of them.
        names: what the service calls the graph (`corpus`, `rules`) and its questions (`dataset`).
        models: the digests of everything that answers.
    """
    asked = {
        "datasets": [{"dataset": names["dataset"], "corpus": names["corpus"]}],
        "variants": [
            {"name": arm.name, "pipeline": arm.pipeline, "params": arm.params,
             "models": {"generate": GENERATORS[arm.generator]}}
            for arm in arms
        ],
        "params": {**params, "rules": names["rules"]},
    }  # fmt: skip
    return {"name": f"{names['corpus']}-{canonical.digest([asked, models]).hex()[:8]}", **asked}


def run(client: Client, asked: Json, label: str) -> dict[str, str]:
    """Jobs by arm, once all have ended.

    Raises:
        Failed: some did not complete.
    """
    found = experiments.run(client, asked, label)
    return {row["variant"]: row["job"] for row in found["report"]["rows"]}


def read(client: Client, setting: Setting, jobs: Jobs) -> Json:
    """What the jobs of a graph came to.

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
            pairs[measure][baseline] = {arms[each["left"]]: _kept(each, KEPT) for each in compared["pairs"]}
            scores[measure] = {arms[each["name"]]: _score(each) for each in compared["jobs"]}
    return {"scores": scores, "pairs": pairs, "arms": {arm: _job(client, job) for arm, job in jobs.items()}}


def _arms(compared: Json, jobs: Jobs) -> dict[str, str]:
    """Arms by what a comparison calls their jobs."""
    names = {job: arm for arm, job in jobs.items()}
    return {each["name"]: names[each["jobs"][0]] for each in compared["jobs"]}


def _score(compared: Json) -> Json:
    return {"items": compared["items"], **_kept(compared["measured"], ("value", "low", "high"))}


def _job(client: Client, job: str) -> Json:
    audit = client.send(api.audit(job))
    return {"job": job, "audit": audited(audit["violations"]), **_kept(client.send(api.report(job)), COST)}


def _kept(of: Json, fields: Iterable[str]) -> Json:
    return {field: of[field] for field in fields}
