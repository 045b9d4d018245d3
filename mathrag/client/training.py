"""Training data of datasets."""

from mathrag.client.request import INDEXED_S, Request, Value, segment


def training(dataset: str, rules: str, form: str, **options: Value | None) -> Request[bytes]:
    """JSON lines of the questions that rules of a bank lead to."""
    query = {"rules": rules, "as": form, **options}
    return Request(path=f"/v1/datasets/{segment(dataset)}/training", query=query, timeout_s=INDEXED_S)
