"""Presets: the configuration of a service and an experiment in one file.

A preset is a committed file, given by its name, or a user's file, given by its path.
"""

from pathlib import Path
from typing import Any

import msgspec

from mathrag.errors import Invalid, NotFound
from mathrag.messages import make_hint

PRESETS = Path(__file__).parent / "presets"
SAMPLED_TEMPERATURE = 0.7
"""Temperature of Qwen2.5-Instruct in its `generation_config.json`."""
HEATMAP = [round(step / 10, 1) for step in range(11)]
"""Values of each weight in the paper's grid search: 0, 0.1 ... 1."""
GATE = "mathrag-gate"


class Preset(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Configuration and experiment of a run; the problems are separate."""

    about: str
    configuration: dict[str, Any]
    """Settings of mathrag.yaml; omitted settings have their defaults."""
    items: int
    """Number of questions, unless --items is given."""
    experiment: dict[str, Any]
    """An experiment file without name and datasets."""

    def configure(
        self,
        folder: Path,
        *,
        server: str | None = None,
        device: str | None = None,
        budget_mib: int | None = None,
        slots: int | None = None,
        embedder: str | None = None,
    ) -> None:
        """Change the service's configuration.

        Args:
            folder: folder of the problems, to which a path of the embedder is relative.
            server: base URL of the Ollama server.
            device: id of the device for the models.
            budget_mib: memory of that device for models.
            slots: number of questions in parallel, for each model.
            embedder: a GGUF file, the URL of a server with `/v1/embeddings`, or `shipped`.
        """
        for model in self.configuration.get("models", {}).values():
            if server and model["driver"] == "ollama":
                model["url"] = server
            if slots:
                model["parallel"] = slots
        wanted = {"id": device, "budget_mib": budget_mib}
        known = self.configuration.setdefault("device", {})
        known.update({key: value for key, value in wanted.items() if value is not None})
        embeddings = self.configuration.setdefault("retrieval", {}).setdefault("embeddings", {})
        if embedder == "shipped":
            embeddings.clear()
        elif embedder is not None and "://" in embedder:
            embeddings.pop("path", None)
            embeddings.pop("threads", None)
            embeddings.update(kind="openai", url=embedder, model="bge-small-en-v1.5")
        elif embedder is not None:
            embeddings.update(kind="gguf", path=str(Path(embedder).absolute()))
        elif "path" in embeddings:
            embeddings["path"] = str((folder / embeddings["path"]).absolute())

    def vary(self, *, repeats: int | None = None, sampled: bool = False, redraw_judge: bool = False) -> None:
        """Change the number of repeats, the sampling, and whether each repeat rates the documents again."""
        if repeats is not None:
            self.experiment["repeats"] = repeats
        params = self.experiment.setdefault("params", {})
        if sampled:
            params.setdefault("generate", {})["temperature"] = SAMPLED_TEMPERATURE
        if redraw_judge:
            params.setdefault("judge", {})["per_repeat"] = True

    def make_heatmap(self) -> dict[str, Any]:
        """Return the experiment of the paper's grid search over both weights, with one repeat.

        Cells with equal ratios of the weights share one job; all cells share the judge's ratings.

        Raises:
            Invalid: no variant has weights.
        """
        gates = [each for each in self.experiment["variants"] if each["pipeline"] == GATE]
        if not gates:
            raise Invalid(f"--heatmap: the preset has no variant with the pipeline {GATE}", hint="omit --heatmap")
        grid = {"rrf_weight": HEATMAP, "quality_weight": HEATMAP}
        return {**self.experiment, "variants": gates[:1], "repeats": 1, "grid": grid}


def list_names() -> list[str]:
    """Return the names of the committed presets."""
    return sorted(file.stem for file in PRESETS.glob("*.yaml"))


def read_text(name: str) -> str:
    """Return the text of a preset, chosen by its name or path.

    Raises:
        NotFound: the preset does not exist.
    """
    for file in (PRESETS / f"{name}.yaml", Path(name)):
        if file.is_file():
            return file.read_text("utf-8")
    hint = make_hint(name, list_names(), f"use one of {', '.join(list_names())}, or your own YAML file")
    raise NotFound(f"preset {name!r} does not exist", hint=hint)


def load(name: str) -> Preset:
    """Read a preset. The service checks its experiment, and the doctor checks its configuration.

    Raises:
        NotFound: the preset does not exist.
        Invalid: the file is not a preset; the message names the field.
    """
    try:
        return msgspec.yaml.decode(read_text(name), type=Preset)
    except msgspec.MsgspecError as error:
        raise Invalid(
            f"preset {name!r}: {error}", hint="mathrag reproduce preset paper prints a valid preset"
        ) from error
