"""Model servers as programs: how each is started for one model, and how what it says of itself must read. Pure.

Spoken to are llama.cpp's `llama-server` (b6710 and later), text-generation-inference 3, and vLLM 0.10 and later;
docs/model-servers.md says which versions were tried.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from re import Pattern
from typing import Any, NamedTuple

from shared.model_settings import Model
from shared.models.sampling import BY_BACKEND, Sampling

SETTINGS = ("LLAMA_ARG_", "LLAMA_CHAT_", "VLLM_")
"""How variables begin by which a model server takes settings."""
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")

KEYS = frozenset({"--api-key", "--api-key-file"})
"""Arguments that hold a secret: a process list shows them, and so does a model's row."""

BATCH_INVARIANT = (0, 11, 1)
"""First vLLM whose VLLM_BATCH_INVARIANT makes replies independent of the batch (docs.vllm.ai, "Batch Invariance")."""

Page = Mapping[str, Any]
"""What a server says of itself."""


class Asked(NamedTuple):
    """What a server is started for: a model by its name and settings, `parallel` prompts at once."""

    name: str
    model: Model
    parallel: int

    @property
    def weights(self) -> str:
        """The model as its server is told it."""
        return str(self.model.hub or self.model.path)

    @property
    def sampling(self) -> Sampling:
        """How its server is told to sample."""
        return BY_BACKEND[program(self.model).backend]


class Launch(NamedTuple):
    """What is started; the environment is added to."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Program:
    """One kind of model server."""

    backend: str
    """As model rows call it."""
    command: tuple[str, ...]
    """As it is usually called."""
    arguments: tuple[str, ...]
    """What the guard decides, with fields in braces."""
    key: str
    """The variable of its API key."""
    environment: Mapping[str, str]
    pages: tuple[str, ...]
    """Where it says what it serves; read as one."""
    printed: Pattern[str]
    """Its version, in what `--version` prints."""
    version: Callable[[Page], str]
    """What the pages name as its version: part of the one that is printed."""
    misfit: Callable[[Page, Asked], str | None]
    """What is wrong with the pages."""
    model_first: tuple[str, ...] = ()
    """What must stand before the operator's arguments."""
    aliases: frozenset[str] = frozenset()
    """Other names of `arguments`."""
    package: str | None = None
    """The Python package whose version it prints, where it is one."""
    deterministic_arguments: tuple[str, ...] = ()
    """Added for a model that is `deterministic`."""
    deterministic_environment: Mapping[str, str] = field(default_factory=dict)

    def made_deterministic(self) -> "Program":
        """The same program, started so that a reply does not depend on what is computed beside it."""
        return replace(
            self,
            arguments=(*self.arguments, *self.deterministic_arguments),
            environment={**self.environment, **self.deterministic_environment},
        )


def program(model: Model) -> Program:
    """The program that serves a model.

    Raises:
        ValueError: the settings name no weights that it could load, or `command` sets what the guard sets.
    """
    kind = VLLM_SLEEP if model.driver == "vllm-sleep" else PROGRAMS[model.server]
    kind = kind.made_deterministic() if model.deterministic else kind
    if model.path is None and model.hub is None:
        raise ValueError("needs a `path`" if model.server == "llama.cpp" else "needs a `path` or a `hub`")
    if model.command:
        _check(model.command, kind)
    return kind


def _check(command: tuple[str, ...], kind: Program) -> None:
    """Refuse a command that lacks the program's own words, or that says what the guard says, by whatever name."""
    words = len(kind.command)
    if command[1:words] != kind.command[1:]:
        raise ValueError(f"`command` must begin with the program and `{' '.join(kind.command[1:])}`")
    if kind.model_first and command[words:] and not command[words].startswith("-"):
        raise ValueError(f"`command` must not hold the model {command[words]!r}: the guard sets it, behind `serve`")
    ours = {each for each in (*kind.arguments, "--revision") if each.startswith("-")} | kind.aliases | KEYS
    ours |= {_negated(each) for each in ours}
    if taken := [name for name in map(_name, command[words:]) if name in ours]:
        raise ValueError(f"`command` must not hold {taken[0]}: the guard sets it")


def _name(argument: str) -> str:
    """Of an argument, without its value; llama.cpp and vLLM take underscores for dashes."""
    name = argument.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _negated(name: str) -> str:
    """`--webui` of `--no-webui`, and the other way round."""
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name.replace("--", "--no-", 1)


def deterministic(model: Model) -> dict[str, int]:
    """What a model's row says of `deterministic`: nothing where it is off, so that rows without it stay the same.

    With it the threads count as well: another number of them rounds otherwise (2 of 80 texts, by measurement).
    """
    return {"deterministic": True, "threads": model.threads} if model.deterministic else {}


def settings_in(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What a model's row says of the environment: nothing where it holds no setting of a model server. No secrets."""
    found = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(SETTINGS) and not any(word in name for word in SECRETS)
    }
    return {"environment": found} if found else {}


def command(model: Model) -> tuple[str, ...]:
    """The program as it is called here."""
    return model.command or program(model).command


def launch(asked: Asked, *, port: int, spare: int, key: str) -> Launch:
    """How to start the server; `spare` is a second free port, for programs whose own processes need one."""
    model, kind = asked.model, program(asked.model)
    fields = {
        "weights": asked.weights, "name": asked.name, "port": port, "spare": spare, "threads": model.threads,
        "parallel": asked.parallel, "context": model.context, "prompt": model.context - 1,
        "all": model.context * asked.parallel, "sockets": Path(tempfile.gettempdir()) / f"mathrag-{port}",
    }  # fmt: skip
    revision = ("--revision", model.revision) if model.revision else ()
    first, ours = ([each.format_map(fields) for each in said] for said in (kind.model_first, kind.arguments))
    called, words = command(model), len(kind.command)
    return Launch((*called[:words], *first, *called[words:], *ours, *revision), {**kind.environment, kind.key: key})


def _llama(page: Page, asked: Asked) -> str | None:
    if page["model_path"] != asked.weights:
        return f"serves {page['model_path']}, not {asked.weights}"
    if page["total_slots"] != asked.parallel:
        return f"has {page['total_slots']} slots, not {asked.parallel}; take `-np` out of `command`"
    # It rounds up, and does not go beyond what the model was trained for.
    return _shorter(page["default_generation_settings"]["n_ctx"], asked)


def _tgi(page: Page, asked: Asked) -> str | None:
    if page["model_id"] != asked.weights:
        return f"serves {page['model_id']}, not {asked.weights}"
    if asked.model.revision and page["model_sha"] is None:
        return "names no revision, as it could not ask the hub; take `revision` away and give the weights as `path`"
    if asked.model.revision and page["model_sha"] != asked.model.revision:
        return f"serves revision {page['model_sha']}, not {asked.model.revision}"
    return _shorter(page["max_total_tokens"], asked)


def _vllm(page: Page, asked: Asked) -> str | None:
    (card,) = page["data"]
    if (card["id"], card["root"]) != (asked.name, asked.weights):
        return f"serves {card['root']} as {card['id']}, not {asked.weights} as {asked.name}"
    if asked.model.deterministic and _release(page["version"]) < BATCH_INVARIANT:
        least = ".".join(map(str, BATCH_INVARIANT))
        return f"is vLLM {page['version']}, which cannot be `deterministic`; install {least} or later"
    return _shorter(card["max_model_len"], asked)


def _release(version: str) -> tuple[int, ...]:
    """The first three numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _shorter(found: int, asked: Asked) -> str | None:
    wanted = asked.model.context
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
    printed=re.compile(r"version: (.+)"),
    version=lambda page: str(page["build_info"]).rpartition("-")[2],
    misfit=_llama,
    aliases=frozenset({"-m", "-a", "-c", "-np", "-t", "-cram", "--ui"}),
    # The one slot that `Model` gives it computes one prompt at a time; a prefix that it kept would change the numbers.
    deterministic_arguments=("--no-cache-prompt",),
)
TGI = Program(
    backend="tgi",
    command=("text-generation-launcher",),
    arguments=(
        *("--model-id", "{weights}", "--hostname", "127.0.0.1", "--port", "{port}"),
        *(
            "--max-input-tokens",
            "{prompt}",
            "--max-total-tokens",
            "{context}",
            "--max-concurrent-requests",
            "{parallel}",
        ),
        # Two servers of one host would share the defaults of these.
        *("--shard-uds-path", "{sockets}", "--master-port", "{spare}", "--usage-stats", "off"),
    ),
    key="API_KEY",
    environment={"PREFIX_CACHING": "0"},
    pages=("/info",),
    printed=re.compile(r"text-generation-launcher (\S+)"),
    version=lambda page: str(page["version"]),
    misfit=_tgi,
    aliases=frozenset({"-p", "--max-input-length"}),
)
VLLM = Program(
    backend="vllm",
    command=("vllm", "serve"),
    model_first=("{weights}",),  # since 0.32 it refuses to start where anything stands before the model
    arguments=(
        *("--served-model-name", "{name}", "--host", "127.0.0.1", "--port", "{port}"),
        *("--max-model-len", "{context}", "--max-num-seqs", "{parallel}", "--seed", "0"),
        # Without it a file in the model's folder would change temperature's neighbours, such as a repetition penalty.
        *("--generation-config", "vllm", "--no-enable-prefix-caching"),
    ),
    key="VLLM_API_KEY",
    # SPT_NOENV: it renames its processes, which would else wipe the mark that they are ours.
    environment={"VLLM_NO_USAGE_STATS": "1", "SPT_NOENV": "1"},
    pages=("/v1/models", "/version"),
    printed=re.compile(r"^(\d+\.\d\S*)$", re.MULTILINE),
    version=lambda page: str(page["version"]),
    misfit=_vllm,
    aliases=frozenset({"--model", "--config"}),  # a file of arguments, which no row would hold
    package="vllm",
    deterministic_environment={"VLLM_BATCH_INVARIANT": "1"},
)
VLLM_SLEEP = replace(
    VLLM,
    arguments=(*VLLM.arguments, "--enable-sleep-mode"),
    environment={**VLLM.environment, "VLLM_SERVER_DEV_MODE": "1"},
)
PROGRAMS: Mapping[str, Program] = {"llama.cpp": LLAMA, "tgi": TGI, "vllm": VLLM}
