"""Single questions, and plans of jobs that are not submitted."""

from collections.abc import Mapping, Sequence
from typing import Literal

from mathrag.client import texts
from mathrag.client.answers import ChatAnswer, PlanView, SearchAnswer
from mathrag.client.connection import ANSWER_S
from mathrag.client.operations import C, Group, Operation
from mathrag.client.request import Json, Request, without_none


def search(
    question: str,
    corpus: str,
    *,
    mode: Literal["dense", "sparse", "hybrid"] = "hybrid",
    k: int = 10,
    enhance: bool = False,
    rerank: bool = False,
    crag: bool = False,
    quality: bool = False,
    params: Mapping[str, object] | None = None,
) -> Request[Json]:
    """Find documents for a question, at once and without any model on a device.

    Args:
        question: the question.
        corpus: name of the corpus.
        mode: "dense", "sparse", or "hybrid", which fuses both.
        k: number of documents, at most 100.
        enhance: whether to search for the cleaned question with synonyms, too.
        rerank: whether to order the documents by the configured reranker.
        crag: whether to evaluate the documents as CRAG does.
        quality: whether to score the reasoning of each document by rules.
        params: parameters of a job, such as `{"fusion": {"dense": 0.7, "sparse": 0.3}}`.
    """
    body = {"question": question, "corpus": corpus, "mode": mode, "k": k, "enhance": enhance, "rerank": rerank}
    return texts.search({**body, "crag": crag, "quality": quality, "params": dict(params or {})})


def chat(
    question: str,
    *,
    corpus: str | None = None,
    pipeline: str | None = None,
    params: Mapping[str, object] | None = None,
    models: Mapping[str, str] | None = None,
    wait_s: float = 30.0,
) -> Request[Json]:
    """Answer one question by a job of one sample; if that takes longer than `wait_s`, the answer names the job.

    Args:
        question: the question.
        corpus: name of the corpus to search; None searches nothing.
        pipeline: name of the pipeline; None is "hybrid" with a corpus, else "closed-book".
        params: parameters of a job.
        models: names of models by role, such as `{"judge": "world-judge"}`.
        wait_s: longest wait for the answer in seconds, at most 60.
    """
    parts = without_none({"corpus": corpus, "pipeline": pipeline})
    body = {"question": question, "params": dict(params or {}), "models": dict(models or {}), "wait_s": wait_s}
    return texts.chat({**body, **parts}, timeout_s=wait_s + ANSWER_S)


def plan(
    *,
    job: Mapping[str, object] | None = None,
    questions: int | None = None,
    models: Sequence[Mapping[str, object]] = (),
    devices: Sequence[Mapping[str, object]] = (),
    retrieval: Mapping[str, object] | None = None,
    speeds: Mapping[str, object] | None = None,
) -> Request[Json]:
    """Plan a job that is not submitted, also for models or devices that do not exist.

    Args:
        job: the fields of `jobs.submit`, without a name.
        questions: number of questions, instead of the dataset's.
        models: models by preset or shape.
        devices: devices, instead of the existing ones.
        retrieval: memory, number and duration of searches that may run on the GPU.
        speeds: speeds of disk, GPU and CPU in MiB/s.
    """
    body = {"job": job, "questions": questions, "retrieval": retrieval, "speeds": speeds}
    return texts.plan(without_none({**body, "models": list(models), "devices": list(devices)}))


class Questions(Group[C]):
    """Single questions, and plans of jobs that are not submitted."""

    search = Operation(search, SearchAnswer)
    chat = Operation(chat, ChatAnswer)
    plan = Operation(plan, PlanView)
