"""How many calls an experiment makes at most: what jobs are known to share is counted once, all else for each job."""

from collections import Counter
from typing import Any

import pytest

from services.orchestrator.experiments.planning import SizedJob, bound_calls, count_work
from shared.params import CriticParams, GateParams, GenerateParams, HydeParams, JudgeParams
from shared.pipelines.binding import Pin
from tests.unit.services.orchestrator.scheduling.test_needs import DENSE, GENERATOR, JUDGE, PINS, SPARSE, job

MANY = 10_000
"""Documents: more than anybody asks for."""


def sized(
    pipeline: str, pins: dict[str, Pin] = PINS, *, items: int = 10, repeats: int = 1, dataset: int = 1,
    corpus: int = 1, documents: int = MANY, **params: Any,
) -> SizedJob:  # fmt: skip
    spec = job(pipeline, pins, gate=GateParams(items=3, tau=1.0), **params)
    return SizedJob(spec, dataset, items, repeats, corpus, documents)


def counted(*jobs: SizedJob) -> dict[str, int]:
    total: Counter[str] = Counter()
    for slot, count in bound_calls(jobs).items():
        total[slot.role] += count
    return dict(total)


def test_one_job_makes_every_call_of_every_question() -> None:
    assert counted(sized("closed-book")) == {"generate": 10}
    # Made-up lists have nothing in common: four of eight documents are candidates.
    assert counted(sized("mathrag-gate")) == {"retrieve": 20, "judge": 40, "generate": 10}


def test_searches_of_the_same_questions_are_made_once() -> None:
    assert counted(sized("dense"), sized("sparse"), sized("hybrid"), sized("mathrag-gate"))["retrieve"] == 20
    assert counted(sized("dense"), sized("dense", dataset=2))["retrieve"] == 20
    assert counted(sized("dense"), sized("closed-book", dataset=2)) == {"retrieve": 10, "generate": 20}


def test_what_every_repeat_draws_anew_and_what_follows_from_it_counts_for_each() -> None:
    assert counted(sized("hybrid", repeats=5)) == {"retrieve": 20, "generate": 10}
    sampled = {"generate": GenerateParams(temperature=0.7)}
    assert counted(sized("hybrid", repeats=5, **sampled)) == {"retrieve": 20, "generate": 50}
    voting = counted(sized("self-consistency", repeats=5))
    assert voting == {"retrieve": 20, "generate": 250, "grade": 1000}
    anew = counted(sized("mathrag-gate", repeats=5, judge=JudgeParams(per_repeat=True)))
    assert anew == {"retrieve": 20, "judge": 200, "generate": 50}


def test_answers_without_a_context_are_made_once_those_with_one_may_differ() -> None:
    assert counted(sized("closed-book"), sized("closed-book")) == {"generate": 10}
    assert counted(sized("dense"), sized("dense", context_size=3))["generate"] == 20


def test_weights_cost_no_rating_and_at_most_an_answer_each() -> None:
    weights = [sized("mathrag-gate", documents=25, rrf_weight=number / 10) for number in range(1, 6)]
    assert counted(*weights) == {"retrieve": 20, "judge": 25, "generate": 50}
    assert counted(*weights[:1])["judge"] == 25


def test_ratings_by_another_rubric_or_judge_or_of_another_corpus_are_others() -> None:
    other = {**PINS, "judge": Pin(model_id=99, hash=f"{99:064x}")}
    jobs = [
        sized("mathrag-gate", documents=5), sized("mathrag-gate", documents=5, rrf_k=10),
        sized("mathrag-gate", documents=5, anchors={"negative": "n"}), sized("mathrag-gate", other, documents=5),
        sized("mathrag-gate", documents=7, corpus=2),
    ]  # fmt: skip
    assert counted(*jobs)["judge"] == 5 + 5 + 5 + 7


def test_a_rating_that_sees_the_question_is_counted_for_every_job() -> None:
    critic = sized("critic-loop", documents=5, critic=CriticParams(attempts=1))
    assert counted(critic)["judge"] == 30
    assert counted(critic, sized("critic-loop", critic=CriticParams(attempts=1), context_size=2))["judge"] == 60


def test_only_repeats_that_draw_anew_ask_again() -> None:
    assert counted(sized("dense", repeats=5)) == {"retrieve": 10, "generate": 10}
    drawn = sized("dense", repeats=5, generate=GenerateParams(temperature=0.7))
    assert counted(drawn) == {"retrieve": 10, "generate": 50}
    alone = sized("closed-book", repeats=5, generate=GenerateParams(temperature=0.7))
    assert counted(alone, alone) == {"generate": 50}
    assert counted(alone, alone._replace(repeats=3)) == {"generate": 50}


def test_texts_written_before_a_search_are_counted_where_they_are_known() -> None:
    hyde = [sized("hyde", hyde=HydeParams(documents=2), context_size=size) for size in (1, 2)]
    found = counted(*hyde)
    assert found["write"] == 20
    assert found["retrieve"] == 20


def test_a_model_without_a_digest_answers_every_job_anew() -> None:
    pins = {**PINS, "generate": Pin(model_id=GENERATOR, hash=f"{GENERATOR:064x}", pinned=False)}
    assert counted(sized("closed-book", pins), sized("closed-book", pins)) == {"generate": 20}


def test_the_plan_is_made_for_what_the_jobs_ask_together() -> None:
    found = count_work([sized("mathrag-gate", documents=25, rrf_weight=weight) for weight in (0.1, 0.2, 0.3)])
    assert {role: (calls.most, calls.apart) for role, calls in found.calls.items()} == {
        "retrieve": (20, 60), "judge": (25, 75), "generate": (30, 30),
    }  # fmt: skip
    assert {model: wanted.calls for model, wanted in found.needs.wanted.items()} == {
        DENSE: 10, SPARSE: 10, JUDGE: 25, GENERATOR: 30,
    }  # fmt: skip
    assert [model for model in found.needs.order if model in (JUDGE, GENERATOR)][-2:] == [JUDGE, GENERATOR]


@pytest.mark.parametrize(
    "pipeline", ["enhanced", "crag", "enhanced-crag", "self-rag", "critic-loop", "hyde", "mathrag-gate"]
)
def test_a_job_beside_itself_asks_no_less_than_alone_and_no_more_than_twice(pipeline: str) -> None:
    pins = {
        **PINS,
        **{role: Pin(model_id=50 + n, hash=f"{50 + n:064x}") for n, role in enumerate(("rerank", "verify"))},
    }
    one = sized(pipeline, pins)
    alone, both = counted(one), counted(one, one)
    assert alone.keys() == both.keys()
    assert all(alone[role] <= both[role] <= 2 * alone[role] for role in alone)
