"""A model of an Ollama server: whether the server is there, has the model, and holds nobody else's."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import psutil

from shared.checks.check import NotReady
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, full_tag
from shared.settings import Settings

NEWER = "install a newer Ollama (https://ollama.com/download) and start it again; or name another server by `url`"
HERE = ("127.0.0.1", "localhost", "::1")
SERVER = "ollama"
BLOBS = "blobs/sha256-"
"""In the command line of every process that holds a model for Ollama: where it keeps weights."""


async def look(name: str, settings: Settings) -> str:
    """Version of the server, and the manifest that the tag names now.

    Raises:
        NotReady: it is away, too old, without the model, or holds what nobody here asked for.
    """
    model = settings.models[name]
    tag = full_tag(model.tag or name)
    async with Ollama(model.url or DEFAULT_URL, {}) as api:
        try:
            version = await api.version()
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix=_start(api.url) if failed.away else NEWER) from failed
        try:
            found = await api.pulled(tag)
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix=_made(api.url, tag)) from failed
        strangers = [each.name for each in await api.resident() if each.name not in _tags(settings)]
    if strangers:
        said = f"{', '.join(strangers)} is loaded as well, and not by this guard"
        raise NotReady(said, fix=f"{command(api.url)} stop {strangers[0]}; then find out who uses the server")
    if _is_here(api.url) and (left := await asyncio.to_thread(lambda: list(_left_over()))):
        said = f"process {', '.join(map(str, left))} holds a model for an Ollama server that has ended"
        raise NotReady(said, fix=f"kill {' '.join(map(str, left))}")
    return f"Ollama {version}; {found.name} {found.digest[:12]}"


def _tags(settings: Settings) -> set[str]:
    return {full_tag(model.tag or name) for name, model in settings.models.items() if model.driver == "ollama"}


def command(url: str) -> str:
    """`ollama`, as it reaches this server."""
    return SERVER if url == DEFAULT_URL else f"OLLAMA_HOST={urlsplit(url).netloc} {SERVER}"


def _start(url: str) -> str:
    if _is_here(url):
        return f"{command(url)} serve"
    port = urlsplit(url).port or 80
    return f"start it on {urlsplit(url).hostname}: OLLAMA_HOST=0.0.0.0:{port} {SERVER} serve"


def _made(url: str, tag: str) -> str:
    return f"{command(url)} pull {tag}; one of your own: {command(url)} create {tag} -f Modelfile"


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in HERE


def _left_over() -> Iterator[int]:
    """Processes that hold a model, and whose server is gone: what is killed does not take them along."""
    for process in _holders():
        with suppress(psutil.Error):
            parent = process.parent()
            if parent is None or not parent.name().startswith(SERVER):
                yield process.pid


def _holders() -> Iterable[psutil.Process]:
    for process in psutil.process_iter(["cmdline"]):
        if any(BLOBS in argument for argument in process.info["cmdline"] or ()):
            yield process
