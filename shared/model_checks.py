"""Check the models, the Ollama servers and the retrieval of a configuration.

`mathrag doctor` has several services run them, each with its own settings and on its own machine.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpx2
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from mathrag.check import Check, NotReady
from mathrag.errors import MathragError
from mathrag.messages import redact
from shared.headers import authorization
from shared.models import commands
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, advise_fetching, find_ollama, make_full_tag
from shared.models.ollama_orphans import LOOPBACK, find_orphans
from shared.plugins.loading import find_usable
from shared.settings import Model, Retrieval, Settings
from shared.shapes import Kind

EXPECTED_ERRORS = (NotReady, MathragError, SQLAlchemyError, OSError, RedisError, httpx2.HTTPError)
"""Errors of a check that count as its negative result."""


async def run_check(name: str, check: Awaitable[str], *, fix: str) -> Check:
    """Run a check; `fix` is the advice for errors without their own."""
    try:
        return Check(name=name, ok=True, detail=await check)
    except EXPECTED_ERRORS as error:
        detail = redact(str(error).partition("\n")[0]) or type(error).__name__
        better = getattr(error, "fix", "") or getattr(error, "hint", "") or fix
        return Check(name=name, ok=False, detail=detail, fix=redact(better))


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
        configured = {
            make_full_tag(each.tag or name) for name, each in settings.models.items() if each.driver == SERVER
        }
        strangers = [each.name for each in await api.list_resident() if each.name not in configured]
    if strangers:
        problem = f"{', '.join(strangers)} is loaded as well, and not by this guard"
        raise NotReady(problem, fix=f"{ollama_command(api.url)} stop {strangers[0]}; then find out who uses the server")
    if left := [str(each.pid) for each in await asyncio.to_thread(find_orphans, api.url)]:
        problem = f"process {', '.join(left)} holds a model for an Ollama server that has ended"
        raise NotReady(problem, fix=f"kill {' '.join(left)}")
    return f"Ollama {version}; {found.name} {found.digest[:12]}"


def ollama_command(url: str) -> str:
    """Return the command `ollama` with the address of this server."""
    return SERVER if url == DEFAULT_URL else f"OLLAMA_HOST={urlsplit(url).netloc} {SERVER}"


def _advise_start(url: str) -> str:
    if urlsplit(url).hostname in LOOPBACK:
        return f"{ollama_command(url)} serve"
    port = urlsplit(url).port or 80
    return f"start it on {urlsplit(url).hostname}: OLLAMA_HOST=0.0.0.0:{port} {SERVER} serve"


# Check the configured models, with one check for each driver. No model is loaded or called.

GGUF = b"GGUF"
REMOTE_S = 5.0
ModelCheck = Callable[[str, Settings], Awaitable[str]]


async def check_model(name: str, settings: Settings) -> str:
    """Check that the model's file, program or server is there, and describe it.

    Raises:
        NotReady: it is missing or does not answer.
    """
    return await CHECKS[settings.models[name].driver](name, settings)


async def _check_program(name: str, settings: Settings) -> str:
    model = settings.models[name]
    if model.driver == "process" and model.server == "embedded":
        return _check_file(model)
    try:
        command = commands.base_command(model)
        kind = commands.select_program(model)
    except ValueError as error:
        raise NotReady(str(error)) from error
    if (found := shutil.which(command[0])) is None:
        raise NotReady(f"no program {command[0]!r}", fix=f"install it, or name it by `models.{name}.command`")
    if kind is commands.LLAMA:
        return f"{found}; {_check_file(model)}"
    if model.path is not None and not (model.path / "config.json").is_file():
        raise NotReady(f"{model.path} holds no config.json")
    on_hub = f"{model.hub} {model.revision[:12]}" if model.revision else f"{model.hub}, not pinned: no `revision`"
    return f"{found}; {model.path or on_hub}"


def _check_file(model: Model) -> str:
    if model.path is None:
        raise NotReady("driver `process` needs a `path`")
    with model.path.open("rb") as opened:
        if opened.read(len(GGUF)) != GGUF:
            raise NotReady(f"{model.path} is not a GGUF file")
    return f"{model.path.stat().st_size / (1 << 20):.0f} MiB"


async def _check_endpoint(name: str, settings: Settings) -> str:
    model = settings.models[name]
    if model.url is None:
        raise NotReady("driver `remote` needs a `url`")
    key = os.environ.get(model.api_key_env, "") if model.api_key_env else ""
    if model.api_key_env and not key:
        raise NotReady(
            f"the environment variable {model.api_key_env} is not set here", fix=f"export {model.api_key_env}=..."
        )
    async with httpx2.AsyncClient(timeout=REMOTE_S, trust_env=False, headers=authorization(key)) as client:
        try:
            status = (await client.get(f"{model.url.rstrip('/')}/models")).status_code
        except httpx2.TransportError as error:
            problem = f"no server at {model.url}: {error or type(error).__name__}"
            raise NotReady(
                problem, fix=f"start it there, or correct `models.{name}.url`; calls wait until it answers"
            ) from error
    if status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN) or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        raise NotReady(f"its server answers {status}")
    if found := await find_ollama(model.url):
        fix = f"`driver: ollama` with `url: {found}` for `models.{name}`"
        raise NotReady(f"{found} is Ollama, whose /v1 silently truncates prompts", fix=fix)
    return "its server answers"


async def _check_scripted(_: str, __: Settings) -> str:
    return "answers by itself"


async def _check_plugin(name: str, settings: Settings) -> str:
    plugin = await asyncio.to_thread(find_usable, Kind.DRIVER, settings.models[name].plugin)
    return str(plugin.pin)


CHECKS: dict[str, ModelCheck] = {
    "process": _check_program,
    "vllm-sleep": _check_program,
    "ollama": check_ollama,
    "remote": _check_endpoint,
    "plugin": _check_plugin,
    "scripted": _check_scripted,
}

# Check the embedder and the reranker: files must exist, servers must answer a request with one letter.

TIMEOUT_S = 5.0
IN_PROCESS = ("static", "gguf", "sentence-transformers")
"""Kinds that the retriever loads itself; the check does not load them."""


def check_retrieval_model(name: str, chosen: Retrieval) -> str:
    """Check the chosen embedder (`name` is "embeddings") or reranker, and describe it.

    Raises:
        NotReady, Unavailable: it cannot be used.
    """
    from shared.models import servers  # 9 MiB, of which most services need none
    from shared.models.embedding import ModelFailed

    try:
        if name == "embeddings":
            embeddings = chosen.embeddings.model_copy(update={"timeout_s": TIMEOUT_S})
            with servers.open_embedder(embeddings) as embedder:
                if embeddings.kind in IN_PROCESS:
                    return f"{embeddings.kind}: {embeddings.model or embeddings.path}"
                found = f"{embedder.dimension} numbers; signature {embedder.signature[:12]}"
                return f"{embeddings.kind}: {embeddings.model}, {found}"
        settings = chosen.reranker.model_copy(update={"timeout_s": TIMEOUT_S})
        with servers.open_reranker(settings) as reranker:
            if reranker is not None and settings.kind not in IN_PROCESS:
                reranker.score("a", ["a"])
            return f"{settings.kind}: {settings.model or settings.path or settings.url}"
    except ModelFailed as failed:
        raise NotReady(failed.detail) from failed
