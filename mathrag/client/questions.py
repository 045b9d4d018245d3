"""Single questions, and plans for what is not submitted."""

from mathrag.client.request import Json, Request


def plan(body: Json) -> Request[Json]:
    """Residencies for a job that is not submitted, or for models that are not there."""
    return Request(method="POST", path="/v1/plan", body=body)


def search(body: Json) -> Request[Json]:
    """Documents that fit a question."""
    return Request(method="POST", path="/v1/search", body=body)


def chat(body: Json) -> Request[Json]:
    """One question, answered as a job."""
    return Request(method="POST", path="/v1/chat", body=body)
