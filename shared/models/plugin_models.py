"""Embedders and rerankers of plug-ins, in the retriever's process: what they raise or return is checked here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shared.contracts import canonical
from shared.contracts.plugins import Kind
from shared.contracts.replies import FailureKind
from shared.errors import Unavailable
from shared.models.ports import CrossEncoder, Encoder, ModelFailed
from shared.plugins.catalogue import Plugin
from shared.plugins.opening import open_plugin

Options = Mapping[str, Any]


class PluginEncoder:
    """The `Encoder` that a plug-in makes of `retrieval.embeddings.options`: it has `encode`, and maybe `close`."""

    def __init__(self, name: str, options: Options) -> None:
        """Make it.

        Raises:
            Unavailable: the plug-in cannot be used, or makes none.
        """
        self._plugin, make = open_plugin(Kind.EMBEDDER, name)
        self._options = dict(options)
        self._model: Encoder = _make_model(self._plugin, make, options)

    def identity(self) -> dict[str, str]:
        """Return the distribution, version and code; vectors of another identity are in another index."""
        return identity_of(self._plugin, self._options)

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """See `Encoder`."""
        found = _call_model(self._plugin, lambda: np.asarray(self._model.encode(texts), dtype=np.float64))
        if found.ndim != 2:
            raise ModelFailed(FailureKind.BACKEND_ERROR, f"{self._plugin.pin} gave no list of vectors")
        vectors: Sequence[Sequence[float]] = found.tolist()
        return vectors

    def close(self) -> None:
        """See `Encoder`."""
        getattr(self._model, "close", lambda: None)()


class PluginCrossEncoder:
    """The `CrossEncoder` that a plug-in makes of `retrieval.reranker.options`: it has `scores`, and maybe `close`."""

    def __init__(self, name: str, options: Options) -> None:
        """Make it.

        Raises:
            Unavailable: the plug-in cannot be used, or makes none.
        """
        self._plugin, make = open_plugin(Kind.RERANKER, name)
        self._model: CrossEncoder = _make_model(self._plugin, make, options)

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        """See `CrossEncoder`."""
        found = _call_model(self._plugin, lambda: [float(each) for each in self._model.scores(question, documents)])
        scores: Sequence[float] = found
        return scores

    def close(self) -> None:
        """See `CrossEncoder`."""
        getattr(self._model, "close", lambda: None)()


def identity_of(plugin: Plugin, options: Options) -> dict[str, str]:
    """Return everything about a plug-in's model that changes its replies."""
    pin = plugin.pin
    return {
        "kind": "plugin",
        "name": pin.name,
        "distribution": pin.distribution,
        "version": pin.version,
        "hash": pin.hash,
        "options": canonical.encode(dict(options)).decode(),
    }


def _make_model(plugin: Plugin, make: Callable[[Options], Any], options: Options) -> Any:
    try:
        return make(dict(options))
    except Exception as error:
        raise Unavailable(f"{plugin.pin} cannot be started: {type(error).__name__}: {error}") from error


def _call_model(plugin: Plugin, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except ModelFailed:
        raise
    except Exception as error:
        message = f"{plugin.pin} raised {type(error).__name__}: {error}"
        raise ModelFailed(FailureKind.BACKEND_ERROR, message) from error
