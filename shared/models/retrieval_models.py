"""The embedder and the reranker that the settings name."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from shared.errors import Unavailable
from shared.models.embedding import ModelEmbedder
from shared.models.embedding_servers import OllamaEncoder, OpenAIEncoder
from shared.models.endpoint import Endpoint, key_of
from shared.models.llama_cpp import LlamaCrossEncoder, LlamaEncoder
from shared.models.ports import CrossEncoder, Embedder, Encoder, Reranker
from shared.models.rerank_servers import JinaServer, TeiServer
from shared.models.reranking import ModelReranker
from shared.models.sentence_models import SentenceCrossEncoder, SentenceEncoder
from shared.models.static_embeddings import StaticEmbedder
from shared.retrieval_settings import Embeddings
from shared.retrieval_settings import Reranker as Reranking


@contextmanager
def embedder(settings: Embeddings) -> Iterator[Embedder]:
    """What makes vectors, for the length of the block.

    Raises:
        Unavailable: a file, a library or a key is not there. A server that is away is no reason: it is asked later.
    """
    if settings.kind == "static":
        yield StaticEmbedder(_path(settings.path))
        return
    with closing(_encoder(settings)) as encoder:
        queries = encoder.queries if isinstance(encoder, SentenceEncoder) else encoder
        yield ModelEmbedder(encoder, settings, queries)


@contextmanager
def reranker(settings: Reranking) -> Iterator[Reranker | None]:
    """What reranks, for the length of the block; None where nothing is configured.

    Raises:
        Unavailable: as for `embedder`.
    """
    if settings.kind == "none":
        yield None
        return
    with closing(_cross_encoder(settings)) as model:
        yield ModelReranker(model, settings)


def _encoder(settings: Embeddings) -> Encoder:
    match settings.kind:
        case "openai":
            return OpenAIEncoder(_endpoint(settings), settings.model, settings.revision)
        case "ollama":
            return OllamaEncoder(_endpoint(settings), settings.model)
        case "gguf":
            return LlamaEncoder(_path(settings.path), settings.threads)
    return SentenceEncoder(settings.path, settings.model, settings.revision)


def _cross_encoder(settings: Reranking) -> CrossEncoder:
    match settings.kind:
        case "endpoint" if settings.protocol == "tei":
            return TeiServer(_endpoint(settings), raw=settings.activation == "sigmoid")
        case "endpoint":
            return JinaServer(_endpoint(settings), settings.model)
        case "gguf":
            return LlamaCrossEncoder(_path(settings.path), settings.threads, raw=settings.activation == "sigmoid")
    return SentenceCrossEncoder(settings.path, settings.model, settings.revision)


def _endpoint(settings: Embeddings | Reranking) -> Endpoint:
    return Endpoint(settings.url or "", key=key_of(settings.api_key_env), timeout_s=settings.timeout_s)


def _path(path: Path | None) -> Path:
    """The settings hold one for every kind that asks for it."""
    if path is None:
        raise Unavailable("no `path`", hint="name one under `retrieval` in mathrag.yaml")
    return path
