"""Requests for corpora and datasets, for training data, and for single questions."""

from collections.abc import Iterable, Sequence
from typing import Literal

from mathrag.client.errors import Failed
from mathrag.client.request import INDEXED_S, Json, Page, Request, Value, segment

Kind = Literal["corpora", "datasets"]
Side = Literal["object", "subject", "both"]
"""Entity of a fact that a question asks for."""
TrainingForm = Literal["pairs", "triplets", "instructions", "messages"]
"""Form of a line of training data."""


def upload(kind: Kind, lines: Iterable[bytes], name: str, **options: Value | None) -> Request[Json]:
    """Store lines under a name; the answer counts the stored and the rejected ones."""
    query = {"name": name, **options}
    return Request(method="POST", path=f"/v1/{kind}", lines=lines, query=query, timeout_s=INDEXED_S, is_idempotent=True)


def get_stored(kind: Kind, name: str) -> Request[Json]:
    """Fetch a corpus or dataset."""
    return Request(path=f"/v1/{kind}/{segment(name)}")


# Corpora.


def list_corpora() -> Request[Page[Json]]:
    """List all corpora, newest first."""
    return Request(path="/v1/corpora")


def get_corpus(name: str) -> Request[Json]:
    """Fetch a corpus with its indexes and the lengths of its texts."""
    return get_stored("corpora", name)


def documents(name: str) -> Request[Page[Json]]:
    """List all documents in the corpus's order, with texts of up to 4,000 characters."""
    return Request(path=f"/v1/corpora/{segment(name)}/documents")


def document(name: str, hash: str) -> Request[Json]:  # noqa: A002 - the API's name
    """Show a document in full, by its hash."""
    return Request(path=f"/v1/corpora/{segment(name)}/documents/{segment(hash)}")


def index(name: str) -> Request[Json]:
    """Build the indexes that the current settings require; valid indexes are kept."""
    return Request(method="POST", path=f"/v1/corpora/{segment(name)}/indexes", timeout_s=INDEXED_S, is_idempotent=True)


def contamination(name: str, dataset: str) -> Request[Json]:
    """Count the questions of a dataset that the corpus contains verbatim or as near-duplicates."""
    query = {"dataset": dataset}
    return Request(path=f"/v1/corpora/{segment(name)}/contamination", query=query, timeout_s=INDEXED_S)


def orphans() -> Request[Json]:
    """List the indexes on Elasticsearch that nothing uses."""
    return Request(path="/v1/indexes/orphans", timeout_s=INDEXED_S)


def delete_orphans() -> Request[Json]:
    """Permanently delete the indexes on Elasticsearch that nothing uses."""
    return Request(method="DELETE", path="/v1/indexes/orphans", timeout_s=INDEXED_S)


def require_only_corpus(corpora: Page[Json]) -> str:
    """Return the name of the only corpus on a page.

    Raises:
        Failed: there are several corpora, or none.
    """
    there = [str(each["name"]) for each in corpora["data"]]
    if len(there) == 1:
        return there[0]
    if there:
        raise Failed(
            "invalid",
            f"`corpus` is missing, and there are several: {', '.join(there)}",
            hint="use --corpus NAME, or `corpus` in an MCP call; mathrag mcp --corpus NAME sets a default",
        )
    raise Failed("not_found", "no corpus is stored", hint="create one: mathrag corpus create NAME --from PATH")


# Datasets, including those made from a graph, and training data.


def list_datasets() -> Request[Page[Json]]:
    """List all datasets, newest first."""
    return Request(path="/v1/datasets")


def get_dataset(name: str) -> Request[Json]:
    """Fetch a dataset with the numbers of its items by subject and level."""
    return get_stored("datasets", name)


def items(name: str) -> Request[Page[Json]]:
    """List all questions with their expected answers, in the dataset's order."""
    return Request(path=f"/v1/datasets/{segment(name)}/items")


def draw(dataset: str, name: str, size: int, *, seed: int = 0, rest: str | None = None) -> Request[Json]:
    """Draw items of a dataset into the new dataset `name`, and store all others as `rest` unless that is None."""
    body = {"name": name, "size": size, "seed": seed, "rest": rest}
    path = f"/v1/datasets/{segment(dataset)}/draw"
    return Request(method="POST", path=path, body=body, timeout_s=INDEXED_S, is_idempotent=True)


def from_graph(name: str, graph: str, lines: Iterable[bytes], **options: Value | None) -> Request[Json]:
    """Store questions for held-out facts; `options`: `rules`, `limit`, `seed`, `side`, `grader`, `unanswered`."""
    query = {"name": name, "graph": graph, **options}
    return Request(
        method="POST", path="/v1/datasets/from-graph", lines=lines, query=query, timeout_s=INDEXED_S, is_idempotent=True
    )


def generate(
    name: str,
    corpus: str,
    *,
    size: int = 100,
    candidates: int | None = None,
    hops: Sequence[int] = (1,),
    seed: int = 0,
    styles: Sequence[str] = (),
    grader: str = "contains",
    judge: str | None = None,
) -> Request[Json]:
    """Let the judge model write questions from the passages of a corpus. The first request starts a job. After the job
    has ended, the same request stores the dataset.

    Args:
        name: name of the dataset.
        corpus: name of the corpus.
        size: largest number of questions.
        candidates: number of questions to write; some fail the checks. None writes twice `size`.
        hops: number of passages that a question needs: (1,), (2,) or (1, 2).
        seed: random seed.
        styles: instructions for wording the questions; they are used in turn.
        grader: grader of the answers.
        judge: name of the model that writes the questions; None lets the service choose.
    """
    body = {
        "name": name, "corpus": corpus, "size": size, "candidates": candidates, "hops": [*hops], "seed": seed,
        "styles": [*styles], "grader": grader, "models": {} if judge is None else {"judge": judge},
    }  # fmt: skip
    return Request(method="POST", path="/v1/datasets/generate", body=body, timeout_s=INDEXED_S, is_idempotent=True)


def training_data(
    name: str,
    rules: str,
    form: TrainingForm = "pairs",
    *,
    graph: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    cot: bool = False,
) -> Request[bytes]:
    """Download training data, line by line, from the questions that the rules of a bank lead to."""
    query = {"rules": rules, "as": form, "limit": limit, "seed": seed, "graph": graph, "cot": cot}
    return Request(path=f"/v1/datasets/{segment(name)}/training", query=query, timeout_s=INDEXED_S)


# Single questions, and plans of jobs that are not submitted.


def plan(body: Json) -> Request[Json]:
    """Plan a hypothetical job, also with models that the service does not have."""
    return Request(method="POST", path="/v1/plan", body=body, is_idempotent=True)


def search(body: Json) -> Request[Json]:
    """Find the documents that match a question."""
    return Request(method="POST", path="/v1/search", body=body, is_idempotent=True)


def chat(body: Json, timeout_s: float | None = None) -> Request[Json]:
    """Answer one question with a job."""
    return Request(method="POST", path="/v1/chat", body=body, timeout_s=timeout_s)
