"""Presets: a configuration and an experiment in one file, and what a person may change of both from the command line.

A preset is named by the committed file that holds it, or is a file of a person's own.
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
from shared.storage.configurations import merged

PRESETS = Path(__file__).parent / "presets"
SAMPLED_TEMPERATURE = 0.7
"""Qwen2.5-Instruct's own, by its `generation_config.json`."""
HEATMAP = tuple(round(step / 10, 1) for step in range(11))
"""Of the paper's grid search: 0, 0.1 ... 1 for either weight."""
GATE = "mathrag-gate"


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a run needs but the problems."""

    about: str
    configuration: dict[str, Any]
    """As in mathrag.yaml; what it leaves out is the default."""
    items: int
    """Questions, unless a person says otherwise."""
    experiment: dict[str, Any]
    """As `mathrag experiment` takes it, without name and datasets."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says otherwise; None: as the preset has it."""

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
        """Options that say how a service is configured."""
        said = {
            "--server": self.server, "--device": self.device, "--budget": self.budget_mib, "--slots": self.slots,
            "--embedder": self.embedder,
        }  # fmt: skip
        return [option for option, value in said.items() if value is not None]


def names() -> list[str]:
    """Of those that are committed."""
    return sorted(file.stem for file in PRESETS.glob("*.yaml"))


def text(name: str) -> str:
    """The file of a preset, committed or a person's own.

    Raises:
        NotFound: there is none.
    """
    for file in (PRESETS / f"{name}.yaml", Path(name)):
        if file.is_file():
            return file.read_text("utf-8")
    hint = suggestions.hint(name, names(), f"--preset {', '.join(names())}, or a YAML file of your own")
    raise NotFound(f"there is no preset {name!r}", hint=hint)


def load(name: str) -> Preset:
    """A preset.

    Raises:
        NotFound: there is none.
        Invalid: the file is no preset; the message names the field.
    """
    try:
        found = msgspec.yaml.decode(text(name), type=Preset)
        msgspec.convert(Experiment.model_validate(document(found, "x", "x", "x")).params, Params)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Invalid(
            f"preset {name!r}: {error}", hint="mathrag reproduce preset paper shows one that is right"
        ) from error
    return found


def changed(preset: Preset, changes: Changes, data: Path) -> Preset:
    """The preset as a person wants it; `data`: the folder beside whose problems the embedder's file lies."""
    experiment = dict(preset.experiment)
    if changes.repeats is not None:
        experiment["repeats"] = changes.repeats
    if changes.sampled:
        experiment["params"] = merged(experiment.get("params", {}), {"generate": {"temperature": SAMPLED_TEMPERATURE}})
    if changes.redraw_judge:
        experiment["params"] = merged(experiment.get("params", {}), {"judge": {"per_repeat": True}})
    return replace(preset, experiment=experiment, configuration=_configuration(preset.configuration, changes, data))


def _configuration(given: dict[str, Any], changes: Changes, data: Path) -> dict[str, Any]:
    models = {name: _model(model, changes) for name, model in given.get("models", {}).items()}
    device = {"id": changes.device, "budget_mib": changes.budget_mib}
    wanted = {key: value for key, value in device.items() if value is not None}
    found = {**given, "device": {**given.get("device", {}), **wanted}, "retrieval": _retrieval(given, changes, data)}
    return {**found, **({"models": models} if models else {})}


def _model(model: dict[str, Any], changes: Changes) -> dict[str, Any]:
    server = {"url": changes.server} if changes.server and model["driver"] == "ollama" else {}
    return {**model, **server, **({"parallel": changes.slots} if changes.slots else {})}


def _retrieval(given: dict[str, Any], changes: Changes, data: Path) -> dict[str, Any]:
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


class Configured(Settings):
    """Settings of a preset; what the environment says goes before it, as it goes before mathrag.yaml."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order: environment, secret files, the preset."""
        return env_settings, file_secret_settings, init_settings


def settings(preset: Preset) -> Settings:
    """As services read them from the file that is written of the preset."""
    return Configured(**preset.configuration)


def document(preset: Preset, name: str, dataset: str, corpus: str) -> dict[str, Any]:
    """The body of `POST /v1/experiments`."""
    return {"name": name, "datasets": [{"dataset": dataset, "corpus": corpus}], **preset.experiment}


def heatmap(preset: Preset, name: str, dataset: str, corpus: str) -> dict[str, Any]:
    """The paper's grid search over both weights, once: equal ratios are one job, and judgements are shared.

    Raises:
        Invalid: no variant has weights.
    """
    gates = [each for each in preset.experiment["variants"] if each["pipeline"] == GATE]
    if not gates:
        raise Invalid(f"--heatmap: no variant of the preset is {GATE}", hint="leave it out")
    grid = {"rrf_weight": list(HEATMAP), "quality_weight": list(HEATMAP)}
    return {**document(preset, name, dataset, corpus), "variants": gates[:1], "repeats": 1, "grid": grid}
