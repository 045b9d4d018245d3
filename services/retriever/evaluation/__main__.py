"""`python -m services.retriever.evaluation`: a request as JSON on standard input, its result on standard output.

Exits with 1 after an error, which is then what stands on standard output: {"error": {"kind", "message", "hint"}}.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from services.retriever.backends import backends
from services.retriever.evaluation import requests
from services.retriever.evaluation.collection import Collection
from services.retriever.evaluation.evaluating import evaluate
from services.retriever.evaluation.requests import Evaluate, Request
from services.retriever.evaluation.searching import Searcher
from services.retriever.evaluation.tuning import tune
from shared import settings
from shared.errors import MathragError
from shared.models import retrieval_models
from shared.settings import Settings


def main() -> None:
    """Answer one request."""
    try:
        found, code = answer(requests.read(), settings.load()), 0
    except MathragError as error:
        found, code = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}, 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.exit(code)


def answer(request: Request, settings: Settings) -> dict[str, Any]:
    """The result of `request` with the back ends of `settings`.

    Raises:
        MathragError: something that either names cannot be used.
    """
    collection, retrieval = Collection(Path(request.folder)), settings.retrieval
    with (
        retrieval_models.embedder(retrieval.embeddings) as embedder,
        retrieval_models.reranker(retrieval.reranker) as reranker,
    ):
        indexes = backends(retrieval, embedder)
        searcher = Searcher(indexes, settings.data_dir, collection, request.k, reranker)
        if isinstance(request, Evaluate):
            return evaluate(request, collection, searcher)
        return tune(request, collection, searcher)


if __name__ == "__main__":
    main()
