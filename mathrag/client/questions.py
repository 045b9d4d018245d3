"""Single questions, and plans of jobs that are not submitted."""

from mathrag.client.request import Json, Request


def plan(body: Json) -> Request[Json]:
    """Request a plan for a job that is not submitted, also for models that do not exist."""
    return Request(method="POST", path="/v1/plan", body=body, is_idempotent=True)


def search(body: Json) -> Request[Json]:
    """Request the documents that match a question."""
    return Request(method="POST", path="/v1/search", body=body, is_idempotent=True)


def chat(body: Json, timeout_s: float | None = None) -> Request[Json]:
    """Request the answer to one question, which runs as a job."""
    return Request(method="POST", path="/v1/chat", body=body, timeout_s=timeout_s)
