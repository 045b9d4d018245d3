"""Check the configured models, with one check for each driver. No model is loaded or called."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable

import httpx2

from shared.bearer import authorization
from shared.checks import ollama
from shared.checks.check import NotReady
from shared.contracts.plugins import Kind
from shared.model_settings import Model
from shared.models import command_lines
from shared.models.ollama import find_ollama
from shared.plugins.opening import find_usable
from shared.settings import Settings

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
        command = command_lines.base_command(model)
        kind = command_lines.select_program(model)
    except ValueError as error:
        raise NotReady(str(error)) from error
    if (found := shutil.which(command[0])) is None:
        raise NotReady(f"no program {command[0]!r}", fix=f"install it, or name it by `models.{name}.command`")
    if kind is command_lines.LLAMA:
        return f"{found}; {_check_file(model)}"
    if model.path is not None and not (model.path / "config.json").is_file():
        raise NotReady(f"{model.path} holds no config.json")
    return f"{found}; {model.path or _describe_revision(model)}"


def _describe_revision(model: Model) -> str:
    return f"{model.hub} {model.revision[:12]}" if model.revision else f"{model.hub}, not pinned: no `revision`"


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
        raise NotReady(f"{model.api_key_env} is not set here", fix=f"export {model.api_key_env}=...")
    async with httpx2.AsyncClient(timeout=REMOTE_S, trust_env=False, headers=authorization(key)) as client:
        try:
            status = (await client.get(f"{model.url.rstrip('/')}/models")).status_code
        except httpx2.TransportError as error:
            problem = f"no server at {model.url}: {error or type(error).__name__}"
            raise NotReady(problem, fix=f"start it there, or correct `models.{name}.url`; calls wait") from error
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
    "ollama": ollama.check_ollama,
    "remote": _check_endpoint,
    "plugin": _check_plugin,
    "scripted": _check_scripted,
}
