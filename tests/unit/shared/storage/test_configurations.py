"""What is changed while everything runs: how changes lie on top of each other, and what a job gets of them."""

import re

import pytest

from mathrag.cli.output import parse_parameters
from services.orchestrator.api.jobs import JobRequest
from shared.errors import Invalid
from shared.params import Params
from shared.runtime.parameters import parse_params
from shared.settings import REPOSITORY
from shared.storage.configurations import DEEPEST, Configuration, merge, prune

pytestmark = pytest.mark.anyio


def test_a_change_is_laid_over_what_is_there_object_by_object() -> None:
    under = {"gate": {"tau": 0.3, "top": 3}, "enhance": {"terms": {"gcd": ["a"]}}, "seed": 1}
    over = {"gate": {"tau": 0.5}, "enhance": {"terms": {"gcd": ["b"], "lcm": []}}, "seed": {}}
    assert merge(under, over) == {
        "gate": {"tau": 0.5, "top": 3}, "enhance": {"terms": {"gcd": ["b"], "lcm": []}}, "seed": {},
    }  # fmt: skip
    assert under["gate"] == {"tau": 0.3, "top": 3}


def test_a_null_takes_a_parameter_away() -> None:
    assert prune({"gate": {"tau": None}, "crag": {"upper": 0.8, "lower": None}, "seed": 0}) == {
        "crag": {"upper": 0.8}, "seed": 0,
    }  # fmt: skip


def test_what_is_nested_deeper_than_parameters_is_not_walked_through() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"gate": deep}
    assert prune({"a": None, **deep}, 0) == deep
    found = prune(merge({"gate": {"tau": 0.1}}, deep))
    for _ in range(DEEPEST + 2):
        found = found["gate"]
    with pytest.raises(Invalid, match=r"`params\.gate"):
        parse_params(deep)
    while deep:  # a deep object is taken apart by hand: Python frees it recursively
        deep = deep.pop("gate")  # type: ignore[assignment]


def test_a_jobs_own_parameters_win_over_the_configured_ones_and_these_over_the_defaults() -> None:
    configured = {"gate": {"tau": 0.3, "top": 3}, "candidates": 20}
    params = parse_params({"gate": {"tau": 0.5}}, configured)
    assert (params.gate.tau, params.gate.top, params.gate.items) == (0.5, 3, Params().gate.items)
    assert params.candidates == 20


def test_a_null_of_a_job_is_a_value_of_its_own() -> None:
    assert parse_params({"crag": {"upper": None}}, {"crag": {"upper": 0.8}}).crag.upper is None
    with pytest.raises(Invalid, match=r"`params\.candidates`: expected `int`, got `null`"):
        parse_params({"candidates": None}, {"candidates": 20})


def test_what_does_not_fit_together_is_named() -> None:
    with pytest.raises(Invalid, match=r"`params\.context_size`: must be between 0 and 3, not 5"):
        parse_params({"candidates": 3}, {"context_size": 5})


DOCUMENTED = {
    "enhance": {"rewrite": True, "decompose": True, "synonyms": True, "correct": True, "subqueries": 3},
    "fusion": {"method": "rrf", "dense": 0.7, "sparse": 0.3},
    "rrf_k": 60,
    "crag": {"evaluator": "similarity", "upper": 0.8, "lower": 0.3, "diversity": 0.5, "rounds": 2},
    "rerank": {"enabled": True, "threshold": 0.4},
    "compress": {"enabled": True, "ratio": 0.7, "tokens": 4000},
}
"""Seed document 001's `rag_enhancement`, in our names."""


def test_the_source_documents_configuration_can_be_set() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "api.md").read_text("utf-8")
    (line,) = re.findall(r"^mathrag config set (.*)$", page, re.MULTILINE)
    said = parse_parameters(line.split())
    assert parse_params(said) == parse_params(DOCUMENTED)


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_a_threshold_is_a_number(bound: float) -> None:
    with pytest.raises(Invalid, match=r"`params\.crag\.upper`: must be a finite number"):
        parse_params({"crag": {"upper": bound}})


def test_a_submission_says_which_configuration_filled_it_in() -> None:
    request = JobRequest(name="a", dataset="d", pipeline="mathrag-gate", params={"seed": 3})
    submission = request.submission(Configuration(version=7, params={"candidates": 20, "seed": 1}))
    assert (submission.configuration, submission.params.candidates, submission.params.seed) == (7, 20, 3)
