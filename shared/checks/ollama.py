"""A model of an Ollama server: whether the server is there, has the model, and holds nobody else's."""

import asyncio
from urllib.parse import urlsplit

from shared.checks.check import NotReady
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, full_tag
from shared.models.ollama_orphans import LOOPBACK, orphans
from shared.settings import Settings

NEWER = "install a newer Ollama (https://ollama.com/download) and start it again; or name another server by `url`"
SERVER = "ollama"


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
    if left := [str(each.pid) for each in await asyncio.to_thread(orphans, api.url)]:
        said = f"process {', '.join(left)} holds a model for an Ollama server that has ended"
        raise NotReady(said, fix=f"kill {' '.join(left)}")
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
    return urlsplit(url).hostname in LOOPBACK
