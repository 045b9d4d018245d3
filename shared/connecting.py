"""Connect a model: find the models on this machine, describe it as settings, and write them into the settings file."""

import asyncio
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, get_args

import httpx2
import msgspec
import yaml

from mathrag.errors import Conflict, Invalid, Unavailable
from mathrag.messages import make_hint
from shared.headers import authorization
from shared.lease.memory import estimate_memory
from shared.models import metadata
from shared.models.metadata import MetadataError
from shared.models.ollama import DEFAULT_URL, Ollama, OllamaFailed, find_ollama
from shared.models.servers import read_key
from shared.settings import Settings, check_url, make_shipped_models
from shared.shapes import MIB, Architecture

Role = Literal["judge", "generate"]
ROLES: tuple[Role, ...] = get_args(Role)
CONTEXT, SLOTS = 4096, 4
"""Tokens of each slot, and slots, of a connected model: some five documents with a question and an answer."""
BUDGET_STEP_MIB = 64
Change = tuple[tuple[str, ...], Any]
"""A path in the settings file, and its new value."""
CHOOSE = "`mathrag model connect` lists the models that can be connected"
QUERY_S = 5.0
MOST_FILES, MOST_FOLDERS, DEEPEST = 100, 2_000, 4
"""Limits of a search for files; `DEEPEST` counts folders below where it starts. Hugging Face keeps files 3 deep."""
FOLDERS = ("models", "~/models", "~/.lmstudio/models", "~/.cache/llama.cpp", "~/.cache/huggingface/hub")
"""Where programs keep GGUF files."""


class FoundModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine that could be connected."""

    what: str
    """Ollama's tag, or the path of a file."""
    source: str
    mib: int
    """Size on disk."""


class NewModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the settings will name it."""

    name: str
    fields: dict[str, Any]
    """Its settings under `models`."""
    mib: int = 0
    """Expected memory on its device; 0 if it needs none there, or nothing is known."""


async def find_models(folders: Iterable[Path] = (), ollama_url: str = DEFAULT_URL) -> list[FoundModel]:
    """Find the models of the Ollama server at `ollama_url`, if it answers, and the GGUF files below `folders` and the
    usual folders; at most 100 files, in at most 2,000 folders, up to 4 folders deep.
    """
    async with Ollama(ollama_url, {}) as api:
        try:
            pulled = await api.list_pulled()
        except OllamaFailed:
            pulled = ()
    found = [FoundModel(what=each.name, source="Ollama", mib=round(each.size / MIB)) for each in pulled]
    return found + await asyncio.to_thread(_find_files, [*map(str, folders), *FOLDERS])


def _find_files(folders: Sequence[str]) -> list[FoundModel]:
    shipped = {model.path for model in make_shipped_models().values()}
    found: dict[Path, FoundModel] = {}
    seen = 0
    for start in folders:
        top = Path(start).expanduser()
        for folder, inner, names in os.walk(top):
            seen += 1
            if seen > MOST_FOLDERS or len(found) >= MOST_FILES:
                return list(found.values())
            for file in (Path(folder, name).absolute() for name in sorted(names) if name.endswith(".gguf")):
                if file not in shipped and file.is_file():
                    found[file] = FoundModel(what=str(file), source="file", mib=round(file.stat().st_size / MIB))
            if len(Path(folder).relative_to(top).parts) == DEEPEST:
                inner.clear()
    return list(found.values())


async def describe_model(
    what: str, *, served: str | None = None, api_key_env: str | None = None, ollama_url: str = DEFAULT_URL
) -> NewModel:
    """Describe the model that `what` names: an address (`https://models.example.org/v1`, where `served` chooses one of
    its models), a GGUF file, or a tag of the Ollama server at `ollama_url`.

    Raises:
        Invalid: the model does not exist, or it is not clear which.
        Unavailable: the server does not answer.
    """
    if what.startswith(("http://", "https://")):
        return await _describe_served(what.rstrip("/"), served, api_key_env)
    if served is not None or api_key_env is not None:
        raise Invalid(f"{what!r} is not an address, so `model` and `api_key_env` do not apply", hint="leave them out")
    if what.endswith(".gguf") or ("/" in what and await asyncio.to_thread(os.path.exists, what)):
        return await asyncio.to_thread(_describe_file, what)
    return await _describe_pulled(what, ollama_url)


async def _describe_served(url: str, served: str | None, api_key_env: str | None) -> NewModel:
    try:
        check_url(url)
    except ValueError as error:
        raise Invalid(str(error), hint="name the environment variable of the key in `api_key_env`") from error
    if found := await find_ollama(url):
        raise Invalid(
            f"{found} is Ollama, whose /v1 silently truncates prompts", hint="name the model by its tag instead"
        )
    try:
        async with httpx2.AsyncClient(
            timeout=QUERY_S, trust_env=False, headers=authorization(read_key(api_key_env))
        ) as client:
            reply = await client.get(f"{url}/models")
            reply.raise_for_status()
            names = [str(each["id"]) for each in reply.json()["data"]]
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        problem = f"no OpenAI-compatible server answers at {url}: {error or type(error).__name__}"
        raise Unavailable(problem, hint="the address usually ends in /v1; `api_key_env` names a key") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"{url}/models does not list models", hint="the address usually ends in /v1") from error
    name = served or (names[0] if len(names) == 1 else None)
    if name not in names:
        problem = f"{url} has no model {served!r}" if served else f"{url} has {len(names)} models; name one of them"
        raise Invalid(problem, hint=make_hint(served or "", names, f"it has {', '.join(names[:20]) or 'none'}"))
    fields: dict[str, Any] = {"driver": "remote", "url": url, "parallel": SLOTS}
    return NewModel(name=name, fields=fields | ({"api_key_env": api_key_env} if api_key_env else {}))


def _describe_file(what: str) -> NewModel:
    path = Path(what).expanduser().absolute()
    try:
        architecture = metadata.read_gguf_architecture(path)
    except (OSError, MetadataError) as error:
        raise Invalid(f"{path} is not the GGUF file of a language model: {error}", hint=CHOOSE) from error
    fields: dict[str, Any] = {"driver": "process", "path": str(path), "threads": os.cpu_count() or 1}
    if shutil.which("llama-server"):  # may be built for the GPU; the shipped one is not
        fields["server"] = "llama.cpp"
    return _size_model(path.stem, fields, architecture)


async def _describe_pulled(tag: str, url: str) -> NewModel:
    async with Ollama(url, {}) as api:
        try:
            await api.require_version()
            pulled = await api.require_pulled(tag)
            shown = await api.show(tag)
        except OllamaFailed as failed:
            hint = "or name a GGUF file or an address instead"
            raise Unavailable(str(failed), hint=hint) from failed
    fields = {"driver": "ollama"} if url == DEFAULT_URL else {"driver": "ollama", "url": url}
    try:
        architecture = metadata.parse_architecture(shown, pulled.size)
    except MetadataError:  # its memory is unknown until it is loaded
        return NewModel(name=pulled.name, fields={**fields, "context": CONTEXT, "parallel": SLOTS})
    return _size_model(pulled.name, fields, architecture)


def _size_model(name: str, fields: dict[str, Any], architecture: Architecture) -> NewModel:
    context = min(CONTEXT, architecture.trained_context or CONTEXT)
    memory = estimate_memory(
        declared_mib=0, architecture=architecture, context=context, parallel=SLOTS, on_gpu=fields["driver"] == "ollama"
    )
    sized = {**fields, "context": context, "parallel": SLOTS, "footprint_mib": math.ceil(memory.at(SLOTS))}
    return NewModel(name=name, fields=sized, mib=sized["footprint_mib"])


def add_model(text: str, new: NewModel, roles: Iterable[Role], settings: Settings) -> str:
    """Return the settings file `text` with the model, which answers `roles` from now on. `settings` are those that hold
    now. Everything else in the file is kept unchanged, comments included.

    The device's budget grows where the model would not fit.

    Raises:
        Conflict: another model has its name.
        Invalid: the file cannot be changed this way; the hint says what to write there by hand.
    """
    before = yaml.safe_load(text) or {}
    models = before.get("models")
    roles = tuple(roles)
    if new.name in settings.models and (models or {}).get(new.name) != new.fields:
        raise Conflict(f"model {new.name!r} is already configured", hint="remove it from `models` first")
    changes: list[Change] = []
    if models is None:  # naming any model leaves out the shipped ones, which the other roles need
        kept = {name for role, name in settings.roles.items() if role not in roles}
        changes += [
            (("models", name), model.model_dump(mode="json", exclude_defaults=True))
            for name, model in settings.models.items()
            if name in kept
        ]
    changes.append((("models", new.name), new.fields))
    # Roles replace each other as a whole as well.
    answering = {**settings.roles, **dict.fromkeys(roles, new.name)}
    changes += [(("roles", role), name) for role, name in answering.items()]
    if new.mib > settings.device.models_mib:
        reserved = settings.device.budget_mib - settings.device.models_mib
        budget = math.ceil((new.mib + reserved) / BUDGET_STEP_MIB) * BUDGET_STEP_MIB
        changes.append((("device", "budget_mib"), budget))
    return _apply_changes(text, before, changes)


def change_model(text: str, name: str, fields: Mapping[str, Any], settings: Settings) -> str:
    """Return the settings file `text` with these fields of the configured model `name`. `settings` are those that hold
    now. Everything else in the file is kept unchanged, comments included.

    A file that names no models gets the shipped ones, since naming any model leaves the others out.

    Raises:
        Invalid: the file cannot be changed this way; the hint says what to write there by hand.
    """
    before = yaml.safe_load(text) or {}
    if before.get("models") is None:
        described = {
            each: model.model_dump(mode="json", exclude_defaults=True) for each, model in settings.models.items()
        }
        described[name] |= fields
        return _apply_changes(text, before, [(("models", each), values) for each, values in described.items()])
    return _apply_changes(text, before, [(("models", name, field), value) for field, value in fields.items()])


def _apply_changes(text: str, before: dict[str, Any], changes: Sequence[Change]) -> str:
    wanted = before
    for path, value in changes:
        wanted = _merge(wanted, path, value)
        text = set_value(text, path, value)
    if yaml.safe_load(text) != wanted:
        lines = _dump({path[0]: wanted[path[0]] for path, _ in changes}, flow=None)
        raise Invalid("the settings file cannot be changed automatically", hint=f"add this by hand:\n{lines}")
    return text


def _merge(values: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {**values, head: _merge(values.get(head) or {}, rest, value) if rest else value}


def read_settings(file: Path) -> str:
    """Read the settings file; empty if the file does not exist."""
    return file.read_text("utf-8") if file.is_file() else ""


def write_settings(file: Path, text: str) -> None:
    """Replace the settings file as a whole, with the permissions that it has."""
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as written:
        written.write(text)
    if file.exists():
        shutil.copymode(file, written.name)
    Path(written.name).replace(file)


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return a YAML mapping with `value` at `path`; the rest of the text, comments included, is kept unchanged."""
    node, depth, above = yaml.compose(text), 0, None
    whole = text.rstrip("\n") + "\n" if text else ""
    if node is None:
        return whole + _dump(_nest(path, value), flow=None)
    while True:
        key, found = next(((key, each) for key, each in node.value if key.value == path[depth]), (None, None))
        if not (isinstance(found, yaml.MappingNode) and found.value and depth + 1 < len(path)):
            break
        node, depth, above = found, depth + 1, key
    entry = _nest(path[depth:], value)
    if found is not None:
        start, end = found.start_mark.index, found.end_mark.index
        space = "" if text[start - 1].isspace() else " "  # a key without a value
        return f"{text[:start]}{space}{_dump(entry[path[depth]], flow=True).strip()}{text[end:]}"
    if node.flow_style:
        end = node.end_mark.index - 1
        return f"{text[:end].rstrip()}{', ' if node.value else ''}{_dump(entry, flow=True).strip()[1:-1]}{text[end:]}"
    if above is None:
        return whole + _dump(entry, flow=None)
    start = text.index("\n", above.end_mark.index) + 1  # the first line below the key
    return f"{text[:start]}{' ' * node.start_mark.column}{_dump(entry, flow=True).strip()[1:-1]}\n{text[start:]}"


def _nest(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _dump(value: Any, *, flow: bool | None) -> str:
    """Dump in flow style, or (None) in block style with only the innermost mappings in flow style."""
    text = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False, width=math.inf, allow_unicode=True)
    return str(text).removesuffix("...\n")
