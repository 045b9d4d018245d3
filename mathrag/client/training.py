"""The request for training data of a dataset."""

from mathrag.client.request import INDEXED_S, Request, Value, segment


def training(dataset: str, rules: str, form: str, **options: Value | None) -> Request[bytes]:
    """Request training data as JSON lines, from the questions that rules of a bank lead to."""
    query = {"rules": rules, "as": form, **options}
    return Request(path=f"/v1/datasets/{segment(dataset)}/training", query=query, timeout_s=INDEXED_S)
