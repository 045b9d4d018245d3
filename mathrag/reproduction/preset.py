"""Presets: a configuration and an experiment in one file, with the changes that the command line can make to both.

A preset is a committed file, chosen by its name, or a user's own file, chosen by its path.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from shared import suggestions
from shared.contracts.experiments import Experiment
from shared.contracts.params import Params
from shared.errors import Invalid, NotFound
from shared.settings import Settings
from shared.storage.configurations import merge

PRESETS = Path(__file__).parent / "presets"
SAMPLED_TEMPERATURE = 0.7
"""Temperature of Qwen2.5-Instruct in its `generation_config.json`."""
HEATMAP = tuple(round(step / 10, 1) for step in range(11))
"""Values of each weight in the paper's grid search: 0, 0.1 ... 1."""
GATE = "mathrag-gate"


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a run needs except the problems."""

    about: str
    configuration: dict[str, Any]
    """Settings as in mathrag.yaml; omitted ones have their defaults."""
    items: int
    """Number of questions, unless --items is given."""
    experiment: dict[str, Any]
    """An experiment file without name and datasets."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Options that override the preset; None keeps the preset's value."""

    server: str | None = None
    """Base URL of the Ollama server."""
    device: str | None = None
    budget_mib: int | None = None
    slots: int | None = None
    embedder: str | None = None
    """A GGUF file, the URL of a server with `/v1/embeddings`, or `shipped`."""
    repeats: int | None = None
    sampled: bool = False
    redraw_judge: bool = False

    @property
    def configures(self) -> list[str]:
        """The given options that change the configuration of a service."""
        message = {
            "--server": self.server, "--device": self.device, "--budget": self.budget_mib, "--slots": self.slots,
            "--embedder": self.embedder,
        }  # fmt: skip
        return [option for option, value in message.items() if value is not None]


def list_names() -> list[str]:
    """Return the names of the committed presets."""
    return sorted(file.stem for file in PRESETS.glob("*.yaml"))


def read_text(name: str) -> str:
    """Return the text of a preset, chosen by its name or path.

    Raises:
        NotFound: there is no such preset.
    """
    for file in (PRESETS / f"{name}.yaml", Path(name)):
        if file.is_file():
            return file.read_text("utf-8")
    hint = suggestions.make_hint(name, list_names(), f"--preset {', '.join(list_names())}, or a YAML file of your own")
    raise NotFound(f"there is no preset {name!r}", hint=hint)


def load(name: str) -> Preset:
    """Read and check a preset.

    Raises:
        NotFound: there is no such preset.
        Invalid: the file is not a valid preset; the message names the field.
    """
    try:
        found = msgspec.yaml.decode(read_text(name), type=Preset)
        msgspec.convert(Experiment.model_validate(document(found, "x", "x", "x")).params, Params)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Invalid(
            f"preset {name!r}: {error}", hint="mathrag reproduce preset paper shows one that is right"
        ) from error
    return found


def apply_changes(preset: Preset, changes: Changes, data: Path) -> Preset:
    """Return the preset with the changes; a relative path of the embedder is resolved from the folder `data`."""
    experiment = dict(preset.experiment)
    if changes.repeats is not None:
        experiment["repeats"] = changes.repeats
    if changes.sampled:
        experiment["params"] = merge(experiment.get("params", {}), {"generate": {"temperature": SAMPLED_TEMPERATURE}})
    if changes.redraw_judge:
        experiment["params"] = merge(experiment.get("params", {}), {"judge": {"per_repeat": True}})
    return replace(
        preset, experiment=experiment, configuration=_change_configuration(preset.configuration, changes, data)
    )


def _change_configuration(given: dict[str, Any], changes: Changes, data: Path) -> dict[str, Any]:
    models = {name: _change_model(model, changes) for name, model in given.get("models", {}).items()}
    device = {"id": changes.device, "budget_mib": changes.budget_mib}
    wanted = {key: value for key, value in device.items() if value is not None}
    found = {
        **given,
        "device": {**given.get("device", {}), **wanted},
        "retrieval": _change_retrieval(given, changes, data),
    }
    return {**found, **({"models": models} if models else {})}


def _change_model(model: dict[str, Any], changes: Changes) -> dict[str, Any]:
    server = {"url": changes.server} if changes.server and model["driver"] == "ollama" else {}
    return {**model, **server, **({"parallel": changes.slots} if changes.slots else {})}


def _change_retrieval(given: dict[str, Any], changes: Changes, data: Path) -> dict[str, Any]:
    retrieval = given.get("retrieval", {})
    embeddings = retrieval.get("embeddings", {})
    match changes.embedder:
        case None if "path" in embeddings:
            embeddings = {**embeddings, "path": str((data / embeddings["path"]).absolute())}
        case "shipped":
            embeddings = {}
        case str(url) if "://" in url:
            kept = {key: value for key, value in embeddings.items() if key not in ("path", "threads")}
            embeddings = {**kept, "kind": "openai", "url": url, "model": "bge-small-en-v1.5"}
        case str(file):
            embeddings = {**embeddings, "kind": "gguf", "path": str(Path(file).absolute())}
    return {**retrieval, "embeddings": embeddings}


class PresetSettings(Settings):
    """Settings of a preset; environment variables override it as they override mathrag.yaml."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: environment, secret files, the preset."""
        return env_settings, file_secret_settings, init_settings


def settings(preset: Preset) -> Settings:
    """Return the settings as services will read them from the preset's configuration file."""
    return PresetSettings(**preset.configuration)


def document(preset: Preset, name: str, dataset: str, corpus: str) -> dict[str, Any]:
    """Return the body of `POST /v1/experiments`."""
    return {"name": name, "datasets": [{"dataset": dataset, "corpus": corpus}], **preset.experiment}


def heatmap(preset: Preset, name: str, dataset: str, corpus: str) -> dict[str, Any]:
    """Return the experiment of the paper's grid search over both weights, with one repeat.

    Cells with equal ratios of the weights share one job, and all share the judge's ratings.

    Raises:
        Invalid: no variant has weights.
    """
    gates = [each for each in preset.experiment["variants"] if each["pipeline"] == GATE]
    if not gates:
        raise Invalid(f"--heatmap: no variant of the preset is {GATE}", hint="omit --heatmap")
    grid = {"rrf_weight": list(HEATMAP), "quality_weight": list(HEATMAP)}
    return {**document(preset, name, dataset, corpus), "variants": gates[:1], "repeats": 1, "grid": grid}
