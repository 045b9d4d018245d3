"""Define the studies: the main comparison for every committed setting, and one study per varied parameter.

A study is one experiment. Its name ends in a digest of settings, seeds, parameters and model files, but not of the
code, so that a study with the same inputs is found again, and one with other inputs is run anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shared import canonical
from shared.settings import REPOSITORY
from world import setting as settings
from world.release import FILES, fingerprint
from world.setting import DocumentCounts, Setting, change_setting

MODELS = REPOSITORY / "models"
PILOT = 101
"""First seed of pilot runs, which may be inspected before the design is fixed; measured seeds begin at 1."""
TAU = 0.45
"""The paper's threshold, section 3.3."""
NOISES = (0, 10, 20, 30, 40, 50)
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}}
"""Parameters of every job. With three documents, effects between documents show. Answers have about 30 tokens."""

Variant = dict[str, Any]


def make_gate_variant(name: str, tau: float = TAU, **models: str) -> Variant:
    """Make a variant of mathrag-gate; tau 1 forces the judge, -1 the rules."""
    chosen = {"models": models} if models else {}
    return {"name": name, "pipeline": "mathrag-gate", "params": {"gate": {"tau": tau}}, **chosen}


HYBRID: Variant = {"name": "hybrid", "pipeline": "hybrid"}
RULES, JUDGE, GATE = (
    make_gate_variant("gate-rules", -1.0),
    make_gate_variant("gate-judge", 1.0),
    make_gate_variant("gate"),
)
ORACLE = make_gate_variant("oracle", 1.0, judge="oracle-0")
MAIN = [
    *({"name": name, "pipeline": name} for name in ("closed-book", "dense", "sparse")),
    HYBRID,
    RULES,
    JUDGE,
    GATE,
    ORACLE,
]
"""Variants of the main table. `oracle` reranks the hybrid list by the documents' true grades."""


class World(NamedTuple):
    """One corpus with its questions, made of a setting and a seed."""

    label: str
    """Name of the setting."""
    setting: Setting
    seed: int
    x: float = 0.0
    """Value of the varied parameter, if there is one."""

    @property
    def name(self) -> str:
        """Name of corpus and dataset, which ends in a digest of setting and seed."""
        return f"{self.label}-{self.seed}-{digest([msgspec.to_builtins(self.setting, str_keys=True), self.seed])}"


class Study(NamedTuple):
    """One experiment of worlds and variants."""

    name: str
    about: str
    """The varied parameter, as a heading."""
    worlds: Sequence[World]
    variants: Sequence[Variant]
    grid: Mapping[str, Sequence[float]] = {}
    baseline: str | None = "hybrid"

    def document(self) -> dict[str, Any]:
        """Write the body of `POST /v1/experiments`."""
        request = {
            "datasets": [{"dataset": world.name, "corpus": world.name} for world in self.worlds],
            "variants": list(self.variants), "grid": {path: list(values) for path, values in self.grid.items()},
            "params": PARAMS, "baseline": self.baseline,
        }  # fmt: skip
        return {"name": f"{self.name}-{digest([request, model_files()])}", **request}


class Scale(NamedTuple):
    """The size of all studies."""

    seeds: int
    """Seeds of the main comparison."""
    items: int | None
    """Questions of a world; None takes the setting's number."""
    few: int
    """Seeds of the other studies."""
    some: int
    """Questions of a world in which a knob is varied."""
    weights: int
    """Weights run from 0 to this."""


SCALES = {
    "full": Scale(seeds=5, items=None, few=2, some=100, weights=10),
    "quick": Scale(seeds=2, items=30, few=1, some=20, weights=3),
}


def studies(scale: Scale, first: int = 1) -> list[Study]:
    """List all studies, the main comparison of every setting first; seeds count from `first`."""
    return [*_main(scale, first), *_parameters(scale, first), *_knobs(scale, first)]


def _main(scale: Scale, first: int) -> Iterator[Study]:
    for label in settings.names():
        yield Study(f"main-{label}", settings.read(label).about, _worlds(label, scale, first, scale.seeds), MAIN)


def _parameters(scale: Scale, first: int) -> Iterator[Study]:
    """Yield studies of parameters in the main comparison's worlds, whose ratings and contexts they reuse."""
    weights = [float(weight) for weight in range(scale.weights + 1)]
    grid = {"rrf_weight": weights, "quality_weight": weights}
    one, few = (_worlds("orthogonal", scale, first, seeds) for seeds in (1, scale.few))
    yield Study("weights", "Weights of rank and quality", one, [JUDGE], grid, None)
    yield Study("context", "Documents in the context", one, [HYBRID, JUDGE, ORACLE], {"context_size": range(1, 6)})
    noisy = [make_gate_variant(f"oracle-{noise}", 1.0, judge=f"oracle-{noise}") for noise in NOISES]
    yield Study("noise", "Share of wrong ratings", few, [HYBRID, *noisy])


def _knobs(scale: Scale, first: int) -> Iterator[Study]:
    """Yield studies of a setting's knobs; each value has a world of its own, with other questions."""
    compared = [HYBRID, RULES, JUDGE, GATE, ORACLE]
    alone = change_setting(settings.read("orthogonal"), near_words=0, near_meaning=0)
    shares = [DocumentCounts(full=10 - bad - (bad < 9), rule=int(bad < 9), wrong=bad) for bad in (0, 2, 4, 6, 8, 9)]
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
            World(f"{name}-{x:g}", change_setting(base, items=scale.some, **{knob: value}), seed, x)
            for x, value in values
            for seed in range(first, first + scale.few)
        ]
        yield Study(name, about, worlds, compared)


def _worlds(label: str, scale: Scale, first: int, seeds: int) -> list[World]:
    chosen = settings.read(label)
    if scale.items:
        chosen = change_setting(chosen, items=scale.items)
    return [World(label, chosen, seed) for seed in range(first, first + seeds)]


def digest(value: object) -> str:
    """Hash a value to eight hexadecimal digits."""
    return canonical.digest(value).hex()[:8]


def model_files(folder: Path = MODELS) -> dict[str, str]:
    """Hash the shipped models (SHA-256), by role."""
    return {role: fingerprint(folder / file) for role, file in FILES.items()}
