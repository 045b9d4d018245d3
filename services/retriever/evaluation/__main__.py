"""Answer one request of `mathrag eval` or `tune`: JSON on standard input, the result as JSON on standard output.

After an error the exit status is 1, and standard output is {"error": {"kind", "message", "hint"}}.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from services.retriever.backends import make_backends
from services.retriever.evaluation import requests
from services.retriever.evaluation.collection import Collection
from services.retriever.evaluation.evaluate import evaluate
from services.retriever.evaluation.requests import Evaluate, Request
from services.retriever.evaluation.searcher import CollectionSearcher
from services.retriever.evaluation.tune import tune
from shared import settings as settings_module
from shared.errors import MathragError
from shared.models import servers
from shared.settings import Settings


def main() -> None:
    try:
        found, code = answer(requests.read(), settings_module.load()), 0
    except MathragError as error:
        found, code = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}, 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.exit(code)


def answer(request: Request, settings: Settings) -> dict[str, Any]:
    """Return the result of `request` with the back ends of `settings`.

    Raises:
        MathragError: something that either names cannot be used.
    """
    collection, retrieval = Collection(Path(request.folder)), settings.retrieval
    with (
        servers.open_embedder(retrieval.embeddings) as embedder,
        servers.open_reranker(retrieval.reranker) as reranker,
    ):
        indexes = make_backends(retrieval, embedder)
        searcher = CollectionSearcher(indexes, settings.data_dir, collection, request.k, reranker)
        if isinstance(request, Evaluate):
            return evaluate(request, collection, searcher)
        return tune(request, collection, searcher)


if __name__ == "__main__":
    main()
