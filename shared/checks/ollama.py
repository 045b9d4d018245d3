"""Check a model of an Ollama server: the server answers, has the model, and holds no other models."""

import asyncio
from urllib.parse import urlsplit

from shared.checks.check import NotReady
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, advise_fetching, make_full_tag
from shared.models.ollama_orphans import LOOPBACK, find_orphans
from shared.settings import Settings

NEWER = "install a newer Ollama (https://ollama.com/download) and start it again; or name another server by `url`"
SERVER = "ollama"


async def check_ollama(name: str, settings: Settings) -> str:
    """Return the version of the server and the manifest that the model's tag names.

    Raises:
        NotReady: the server does not answer, is too old, lacks the model, or holds models that are not configured.
    """
    model = settings.models[name]
    tag = make_full_tag(model.tag or name)
    async with Ollama(model.url or DEFAULT_URL, {}) as api:
        try:
            version = await api.require_version()
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix=_advise_start(api.url) if failed.away else NEWER) from failed
        try:
            found = await api.require_pulled(tag)
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix=advise_fetching(tag, ollama_command(api.url))) from failed
        strangers = [
            each.name for each in await api.list_resident() if each.name not in _list_configured_tags(settings)
        ]
    if strangers:
        problem = f"{', '.join(strangers)} is loaded as well, and not by this guard"
        raise NotReady(problem, fix=f"{ollama_command(api.url)} stop {strangers[0]}; then find out who uses the server")
    if left := [str(each.pid) for each in await asyncio.to_thread(find_orphans, api.url)]:
        problem = f"process {', '.join(left)} holds a model for an Ollama server that has ended"
        raise NotReady(problem, fix=f"kill {' '.join(left)}")
    return f"Ollama {version}; {found.name} {found.digest[:12]}"


def _list_configured_tags(settings: Settings) -> set[str]:
    return {make_full_tag(model.tag or name) for name, model in settings.models.items() if model.driver == "ollama"}


def ollama_command(url: str) -> str:
    """Return the command `ollama` with the address of this server."""
    return SERVER if url == DEFAULT_URL else f"OLLAMA_HOST={urlsplit(url).netloc} {SERVER}"


def _advise_start(url: str) -> str:
    if _is_here(url):
        return f"{ollama_command(url)} serve"
    port = urlsplit(url).port or 80
    return f"start it on {urlsplit(url).hostname}: OLLAMA_HOST=0.0.0.0:{port} {SERVER} serve"


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK
