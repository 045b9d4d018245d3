"""The configured models: each driver has a probe of its own, in one table."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial

import httpx2
from sqlalchemy import text

from services.orchestrator.api.resources import Resources
from services.orchestrator.probes.probe import NotReady, Probe
from shared.access.bearer import authorization
from shared.models import command_lines, weights
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, behind
from shared.settings import Model, Settings

GGUF = b"GGUF"
REMOTE_S = 5.0
NEWER = "install a newer Ollama (https://ollama.com/download) and start it again; or name another server by `url`"
DIGESTS = text("SELECT name, digest FROM models WHERE served AND name = ANY(:names)")

Look = Callable[[str, Model], Awaitable[str]]


def probes(settings: Settings) -> list[Probe]:
    """One for each model of the settings."""
    return [
        Probe(
            name=f"model {name}",
            run=partial(_look, name),
            fix=f"correct `models.{name}` in mathrag.yaml, then restart the guard",
            deep=True,
            alone=True,
        )
        for name in settings.models
    ]


async def _look(name: str, held: Resources) -> str:
    model = held.settings.models[name]
    return await LOOKS[model.driver](name, model)


async def _program(name: str, model: Model) -> str:
    if model.driver == "process" and model.server == "embedded":
        return await _file(name, model)
    try:
        command = command_lines.command(model)
        kind = command_lines.program(model)
    except ValueError as error:
        raise NotReady(str(error)) from error
    if (found := shutil.which(command[0])) is None:
        raise NotReady(f"no program {command[0]!r}", fix=f"install it, or name it by `models.{name}.command`")
    if kind is command_lines.LLAMA:
        return f"{found}; {await _file(name, model)}"
    if model.path is not None and not (model.path / "config.json").is_file():
        raise NotReady(f"{model.path} holds no config.json")
    return f"{found}; {model.path or _pinned(model)}"


def _pinned(model: Model) -> str:
    return f"{model.hub} {model.revision[:12]}" if model.revision else f"{model.hub}, not pinned: no `revision`"


async def _file(_: str, model: Model) -> str:
    if model.path is None:
        raise NotReady("driver `process` needs a `path`")
    with model.path.open("rb") as opened:
        if opened.read(len(GGUF)) != GGUF:
            raise NotReady(f"{model.path} is no GGUF file")
    return f"{model.path.stat().st_size / (1 << 20):.0f} MiB"


async def _endpoint(name: str, model: Model) -> str:
    if model.url is None:
        raise NotReady("driver `remote` needs a `url`")
    key = os.environ.get(model.api_key_env, "") if model.api_key_env else ""
    if model.api_key_env and not key:
        raise NotReady(f"{model.api_key_env} is not set here", fix=f"export {model.api_key_env}=...")
    async with httpx2.AsyncClient(timeout=REMOTE_S, trust_env=False, headers=authorization(key)) as client:
        status = (await client.get(f"{model.url.rstrip('/')}/models")).status_code
    if status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN) or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        raise NotReady(f"its server answers {status}")
    if found := await behind(model.url):
        fix = f"`driver: ollama` with `url: {found}` for `models.{name}`"
        raise NotReady(f"{found} is Ollama, whose /v1 cuts prompts in silence", fix=fix)
    return "its server answers"


async def _pulled(name: str, model: Model) -> str:
    async with Ollama(model.url or DEFAULT_URL, {}) as api:
        try:
            version = await api.version()
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix="ollama serve" if failed.away else NEWER) from failed
        try:
            found = await api.pulled(model.tag or name)
        except OllamaFailed as failed:
            raise NotReady(str(failed), fix=f"ollama pull {model.tag or name}") from failed
    return f"Ollama {version}; {found.name} {found.digest[:12]}"


async def _nothing(_: str, __: Model) -> str:
    return "answers by itself"


LOOKS: dict[str, Look] = {
    "process": _program,
    "vllm-sleep": _program,
    "ollama": _pulled,
    "remote": _endpoint,
    "scripted": _nothing,
}


async def digests(held: Resources) -> str:
    """The files are those that the guard registered."""
    files = {name: model.path for name, model in held.settings.models.items() if model.path is not None}
    async with held.database.transaction() as connection:
        registered = {row.name: row.digest for row in await connection.execute(DIGESTS, {"names": list(files)})}
    known = {name: file for name, file in files.items() if name in registered}
    changed = [
        name for name, file in known.items() if await asyncio.to_thread(weights.digest, file) != registered[name]
    ]
    if changed:
        raise NotReady(f"the file of {', '.join(changed)} is not the one that was registered")
    return f"{len(known)} files are as registered"
