"""Open the embedder and the reranker that the settings name."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from shared.errors import Unavailable
from shared.models.embedding import ModelEmbedder
from shared.models.embedding_servers import OllamaEncoder, OpenAIEncoder
from shared.models.endpoint import Endpoint, read_key
from shared.models.llama_cpp import LlamaCrossEncoder, LlamaEncoder
from shared.models.plugin_models import PluginCrossEncoder, PluginEncoder
from shared.models.ports import CrossEncoder, Embedder, Encoder, Reranker
from shared.models.rerank_servers import JinaServer, TeiServer
from shared.models.reranking import ModelReranker
from shared.models.sentence_models import SentenceCrossEncoder, SentenceEncoder
from shared.models.static_embeddings import StaticEmbedder
from shared.retrieval_settings import Embeddings
from shared.retrieval_settings import Reranker as Reranking


@contextmanager
def open_embedder(settings: Embeddings) -> Iterator[Embedder]:
    """Open the embedder of the settings for the length of the block.

    Raises:
        Unavailable: a file, a library or a key is missing. A server is not reached until its first use.
    """
    if settings.kind == "static":
        yield StaticEmbedder(_require_path(settings.path))
        return
    with closing(_make_encoder(settings)) as encoder:
        queries = encoder.queries if isinstance(encoder, SentenceEncoder) else encoder
        yield ModelEmbedder(encoder, settings, queries)


@contextmanager
def open_reranker(settings: Reranking) -> Iterator[Reranker | None]:
    """Open the reranker of the settings for the length of the block; None if none is configured.

    Raises:
        Unavailable: as `open_embedder`.
    """
    if settings.kind == "none":
        yield None
        return
    with closing(_make_cross_encoder(settings)) as model:
        yield ModelReranker(model, settings)


def _make_encoder(settings: Embeddings) -> Encoder:
    match settings.kind:
        case "openai":
            return OpenAIEncoder(_make_endpoint(settings), settings.model, settings.revision)
        case "ollama":
            return OllamaEncoder(_make_endpoint(settings), settings.model)
        case "gguf":
            return LlamaEncoder(_require_path(settings.path), settings.threads)
        case "plugin":
            return PluginEncoder(settings.plugin, settings.options)
    return SentenceEncoder(settings.path, settings.model, settings.revision)


def _make_cross_encoder(settings: Reranking) -> CrossEncoder:
    match settings.kind:
        case "endpoint" if settings.protocol == "tei":
            return TeiServer(_make_endpoint(settings), raw=settings.activation == "sigmoid")
        case "endpoint":
            return JinaServer(_make_endpoint(settings), settings.model)
        case "gguf":
            return LlamaCrossEncoder(
                _require_path(settings.path), settings.threads, raw=settings.activation == "sigmoid"
            )
        case "plugin":
            return PluginCrossEncoder(settings.plugin, settings.options)
    return SentenceCrossEncoder(settings.path, settings.model, settings.revision)


def _make_endpoint(settings: Embeddings | Reranking) -> Endpoint:
    return Endpoint(settings.url or "", key=read_key(settings.api_key_env), timeout_s=settings.timeout_s)


def _require_path(path: Path | None) -> Path:
    """Return the path, which the settings have checked for every kind that needs one."""
    if path is None:
        raise Unavailable("a `path` is missing", hint="set it under `retrieval` in mathrag.yaml")
    return path
