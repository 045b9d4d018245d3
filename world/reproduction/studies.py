"""What is run: for every committed setting the main comparison, and one study for each thing that is varied.

A study is one experiment.  Its name ends in a digest of all that it depends on but the code: settings, seeds,
parameters and model files.  So what was run with the same is found again, and what changed is run anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shared.contracts import canonical
from shared.settings import REPOSITORY
from world import setting as settings
from world.release import FILES, fingerprint
from world.setting import Counts, Setting, changed

MODELS = REPOSITORY / "models"
PILOT = 101
"""Seeds from here on may be looked at before anything is decided; the measured ones begin at 1."""
TAU = 0.45
"""The paper's, section 3.3."""
NOISES = (0, 10, 20, 30, 40, 50)
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}, "verify": {"modulus": 10}}
"""Of every job. Three documents: one hides what several do to each other. Answers have about 30 tokens."""

Variant = dict[str, Any]


def gated(name: str, tau: float = TAU, **models: str) -> Variant:
    """mathrag-gate: tau 1 forces the judge, -1 the rules."""
    chosen = {"models": models} if models else {}
    return {"name": name, "pipeline": "mathrag-gate", "params": {"gate": {"tau": tau}}, **chosen}


HYBRID: Variant = {"name": "hybrid", "pipeline": "hybrid"}
RULES, JUDGE, GATE = gated("gate-rules", -1.0), gated("gate-judge", 1.0), gated("gate")
ORACLE = gated("oracle", 1.0, judge="oracle-0")
MAIN = [
    *({"name": name, "pipeline": name} for name in ("closed-book", "dense", "sparse")),
    HYBRID,
    RULES,
    JUDGE,
    GATE,
    ORACLE,
]
"""Of the main table. `oracle` reranks the hybrid list by the documents' true grades."""


class World(NamedTuple):
    """One corpus with its questions."""

    label: str
    """Of the setting."""
    setting: Setting
    seed: int
    x: float = 0.0
    """Where something is varied: how much of it."""

    @property
    def name(self) -> str:
        """Of corpus and dataset."""
        return f"{self.label}-{self.seed}-{digest([msgspec.to_builtins(self.setting, str_keys=True), self.seed])}"


class Study(NamedTuple):
    """One experiment."""

    name: str
    about: str
    """What is varied, as a heading says it."""
    worlds: Sequence[World]
    variants: Sequence[Variant]
    grid: Mapping[str, Sequence[float]] = {}
    baseline: str | None = "hybrid"

    def document(self) -> dict[str, Any]:
        """As `POST /v1/experiments` takes it."""
        asked = {
            "datasets": [{"dataset": world.name, "corpus": world.name} for world in self.worlds],
            "variants": list(self.variants), "grid": {path: list(values) for path, values in self.grid.items()},
            "params": PARAMS, "baseline": self.baseline,
        }  # fmt: skip
        return {"name": f"{self.name}-{digest([asked, model_files()])}", **asked}


class Scale(NamedTuple):
    """How much of it."""

    seeds: int
    """Of the main comparison."""
    items: int | None
    """Questions of a world; None: as many as its setting says."""
    few: int
    """Seeds of what is varied."""
    some: int
    """Questions of a world in which a knob is varied."""
    weights: int
    """Weights run from 0 to this."""


SCALES = {
    "full": Scale(seeds=5, items=None, few=2, some=100, weights=10),
    "quick": Scale(seeds=2, items=30, few=1, some=20, weights=3),
}


def studies(scale: Scale, first: int = 1) -> list[Study]:
    """All of them, the main comparison of every setting first; seeds are counted from `first`."""
    return [*_main(scale, first), *_parameters(scale, first), *_knobs(scale, first)]


def _main(scale: Scale, first: int) -> Iterator[Study]:
    for label in settings.names():
        yield Study(f"main-{label}", settings.read(label).about, _worlds(label, scale, first, scale.seeds), MAIN)


def _parameters(scale: Scale, first: int) -> Iterator[Study]:
    """What is varied in the worlds that the main comparison asked about, whose ratings and contexts it shares."""
    weights = [float(weight) for weight in range(scale.weights + 1)]
    grid = {"rrf_weight": weights, "quality_weight": weights}
    one, few = (_worlds("orthogonal", scale, first, seeds) for seeds in (1, scale.few))
    yield Study("weights", "Weights of rank and quality", one, [JUDGE], grid, None)
    yield Study("context", "Documents in the context", one, [HYBRID, JUDGE, ORACLE], {"context_size": range(1, 6)})
    noisy = [gated(f"oracle-{noise}", 1.0, judge=f"oracle-{noise}") for noise in NOISES]
    yield Study("noise", "Share of wrong ratings", few, [HYBRID, *noisy])


def _knobs(scale: Scale, first: int) -> Iterator[Study]:
    """Where documents differ, worlds do: their questions are not the same."""
    compared = [HYBRID, RULES, JUDGE, GATE, ORACLE]
    alone = changed(settings.read("orthogonal"), near_words=0, near_meaning=0)
    shares = [Counts(full=10 - bad - (bad < 9), rule=int(bad < 9), wrong=bad) for bad in (0, 2, 4, 6, 8, 9)]
    knobs: dict[str, tuple[str, Setting, str, Sequence[tuple[float, Any]]]] = {
        "bad": ("Share of bad documents", alone, "documents", [(each.wrong / 10, each) for each in shares]),
        "unrelated": (
            "Unrelated documents a question", settings.read("unrelated"), "unrelated", [(n, n) for n in range(4)]
        ),
        "agreement": (
            "Agreement of form and logic", settings.read("orthogonal"), "agreement",
            [(degree, degree) for degree in (-1.0, -0.5, 0.0, 0.5, 1.0)],
        ),
    }  # fmt: skip
    for name, (about, base, knob, values) in knobs.items():
        worlds = [
            World(f"{name}-{x:g}", changed(base, items=scale.some, **{knob: value}), seed, x)
            for x, value in values
            for seed in range(first, first + scale.few)
        ]
        yield Study(name, about, worlds, compared)


def _worlds(label: str, scale: Scale, first: int, seeds: int) -> list[World]:
    chosen = settings.read(label)
    if scale.items:
        chosen = changed(chosen, items=scale.items)
    return [World(label, chosen, seed) for seed in range(first, first + seeds)]


def digest(value: object) -> str:
    """Eight letters that stand for a value."""
    return canonical.digest(value).hex()[:8]


def model_files(folder: Path = MODELS) -> dict[str, str]:
    """The shipped models' SHA-256, by role."""
    return {role: fingerprint(folder / file) for role, file in FILES.items()}
