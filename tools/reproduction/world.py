"""``make reproduce-world``: run every study, then write the results, the figures and the numbers in the text.

    .venv/bin/python -m tools.reproduction.world --scale quick|full [--data-dir DIR] [--first-seed N] [--only-write]

Studies with the same settings, seeds, parameters and models are not run again, also after an interruption.
Full results from seed 1 go to docs/reference/results, and docs/reference/reproduction.md is rewritten; others
stay in DIR/results.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from mathrag.cli.output import report_errors
from mathrag.client import address, texts
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.uploads import Sources
from mathrag.reading import paths
from mathrag_gate.demo import world as world_module
from mathrag_gate.demo.world import DocumentCounts, Setting, build, change_setting, write
from mathrag_gate.stack import control
from shared import canonical
from shared.pages.figures import write_all
from shared.pages.pages import rewrite_blocks
from shared.params import QUALITY_ALONE
from shared.settings import REPOSITORY
from tools.reproduction import experiments, pages, world_findings
from tools.reproduction.experiments import find
from tools.world.release import FILES, fingerprint

# Define the studies: the main comparison for every committed setting, and one study per varied parameter.
#
# A study is one experiment. Its name ends in a digest of settings, seeds, parameters and model files, but not of the
# code, so that a study with the same inputs is found again, and one with other inputs runs again.

MODELS = REPOSITORY / "models"
PILOT = 101
"""First seed of pilot runs, which may be inspected before the design is fixed; measured seeds begin at 1."""
TAU = 0.45
"""The paper's threshold, section 3.3."""
NOISES = (0, 10, 20, 30, 40, 50)
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}, **QUALITY_ALONE}
"""Parameters of every job. With three documents, effects between documents show. Answers have about 30 tokens. Quality
alone reorders all candidates, as in the paper."""

Variant = dict[str, Any]


def make_gate_variant(name: str, tau: float = TAU, **models: str) -> Variant:
    """Make a variant of mathrag-gate; tau 1 forces the judge, -1 the rules."""
    chosen = {"models": models} if models else {}
    return {"name": name, "pipeline": "mathrag-gate", "params": {"gate": {"tau": tau}}, **chosen}


HYBRID: Variant = {"name": "hybrid", "pipeline": "hybrid"}
RULES, JUDGE = make_gate_variant("gate-rules", -1.0), make_gate_variant("gate-judge", 1.0)
GATE, ORACLE = make_gate_variant("gate"), make_gate_variant("oracle", 1.0, judge="oracle-0")
COMPARED = [HYBRID, RULES, JUDGE, GATE, ORACLE]
MAIN = [*({"name": name, "pipeline": name} for name in ("closed-book", "dense", "sparse")), *COMPARED]
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
    return [*_list_main_studies(scale, first), *_vary_knobs(scale, first)]


def _list_main_studies(scale: Scale, first: int) -> Iterator[Study]:
    """Yield the main comparison, then studies of parameters in its worlds, whose ratings and contexts they reuse."""
    for label in world_module.names():
        yield Study(f"main-{label}", world_module.read(label).about, _worlds(label, scale, first, scale.seeds), MAIN)
    weights = [float(weight) for weight in range(scale.weights + 1)]
    grid = {"rrf_weight": weights, "quality_weight": weights}
    one, few = (_worlds("orthogonal", scale, first, seeds) for seeds in (1, scale.few))
    yield Study("weights", "Weights of rank and quality", one, [JUDGE], grid, None)
    yield Study("context", "Documents in the context", one, [HYBRID, JUDGE, ORACLE], {"context_size": range(1, 6)})
    noisy = [make_gate_variant(f"oracle-{noise}", 1.0, judge=f"oracle-{noise}") for noise in NOISES]
    yield Study("noise", "Share of wrong ratings", few, [HYBRID, *noisy])


def _vary_knobs(scale: Scale, first: int) -> Iterator[Study]:
    """Yield studies of a setting's knobs; each value has a separate world, with other questions."""
    alone = change_setting(world_module.read("orthogonal"), near_words=0, near_meaning=0)
    shares = [DocumentCounts(full=10 - bad - (bad < 9), rule=int(bad < 9), wrong=bad) for bad in (0, 2, 4, 6, 8, 9)]
    knobs: dict[str, tuple[str, Setting, str, Sequence[tuple[float, Any]]]] = {
        "bad": ("Share of bad documents", alone, "documents", [(each.wrong / 10, each) for each in shares]),
        "unrelated": (
            "Unrelated documents a question", world_module.read("unrelated"), "unrelated", [(n, n) for n in range(4)]
        ),
        "agreement": (
            "Agreement of form and logic", world_module.read("orthogonal"), "agreement",
            [(degree, degree) for degree in (-1.0, -0.5, 0.0, 0.5, 1.0)],
        ),
    }  # fmt: skip
    for name, (about, base, knob, values) in knobs.items():
        worlds = [
            World(f"{name}-{x:g}", change_setting(base, items=scale.some, **{knob: value}), seed, x)
            for x, value in values
            for seed in range(first, first + scale.few)
        ]
        yield Study(name, about, worlds, COMPARED)


def _worlds(label: str, scale: Scale, first: int, seeds: int) -> list[World]:
    chosen = world_module.read(label)
    if scale.items:
        chosen = change_setting(chosen, items=scale.items)
    return [World(label, chosen, seed) for seed in range(first, first + seeds)]


def digest(value: object) -> str:
    """Hash a value to eight hexadecimal digits."""
    return canonical.digest(value).hex()[:8]


def model_files(folder: Path = MODELS) -> dict[str, str]:
    """Hash the shipped models (SHA-256), by role."""
    return {role: fingerprint(folder / file) for role, file in FILES.items()}


ANSWER_S = 600.0
"""Long, because the report of an experiment reads every sample of its jobs."""
ATTEMPTS = 3
"""To start the stack."""


def furnish(folder: Path, worlds: Iterable[World]) -> None:
    """Write the corpora that are missing, each in a folder with the name of its world."""
    for world in worlds:
        place = folder / world.name
        if not (place / "dataset.jsonl").exists():
            write(build(world.seed, world.setting), place)


@contextmanager
def serve_stack(folder: Path) -> Iterator[Client]:
    """Run the folder's stack and an oracle for its corpora; both are stopped at the end."""
    port = choose_port(folder)
    with serve_oracle(folder / "corpora", port), _stack(folder) as url, Client(url, timeout_s=ANSWER_S) as client:
        yield client


def choose_port(folder: Path) -> int:
    """Return the oracle's port, which is chosen once, because it is part of the identity of its models."""
    file = folder / "mathrag.yaml"
    if not file.exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        shipped = {
            f"world-{role}": {"driver": "process", "path": str(MODELS / file), "footprint_mib": 96}
            for role, file in FILES.items()
        }
        url = f"http://127.0.0.1:{port}/v1"
        models = shipped | {f"oracle-{noise}": {"driver": "remote", "url": url, "parallel": 16} for noise in NOISES}
        file.write_text(json.dumps({"models": models}, indent=1))
    kept: dict[str, Any] = json.loads(file.read_text())
    return int(kept["models"]["oracle-0"]["url"].split(":")[-1].removesuffix("/v1"))


@contextmanager
def serve_oracle(corpora: Path, port: int) -> Iterator[None]:
    """Run the oracle for the corpora.

    Raises:
        Failed: another process listens at the port, or the oracle does not start.
    """
    if _listens(port):
        raise Failed("conflict", f"port {port} is taken", hint="stop the other run, or the process that listens there")
    command = [sys.executable, "-m", "tools.world.oracle", "--corpora", str(corpora), "--port", str(port)]
    running = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        while not _listens(port):
            if running.poll() is not None:
                raise Failed("unavailable", "the oracle has ended", hint="its output is above")
            time.sleep(0.1)
        yield
    finally:
        running.terminate()
        running.wait()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _stack(folder: Path) -> Iterator[str]:
    """Start the stack; a stack that an earlier run left is stopped first, because its oracle has gone.

    The start is tried again if a service was not ready in time, as happens on a busy machine.
    """
    if control.find_holder(folder) is not None:
        _mathrag(folder, "down")
    try:
        for left in reversed(range(ATTEMPTS)):
            try:
                _mathrag(folder, "up", "--detach", "--port", "0")
                break
            except Failed:
                if not left:
                    raise
        running = address.read_state(folder)
        if running is None:
            raise Failed("unavailable", "the stack wrote no address", hint=f"less {folder}/logs/*")
        yield running.url
    finally:
        _mathrag(folder, "down")


def _mathrag(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments, "--data-dir", str(folder)]
    environment = {**os.environ, "MATHRAG_CONFIG": str(folder / "mathrag.yaml")}
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, check=False)
    if ended.returncode:
        raise Failed("unavailable", f"`mathrag {arguments[0]}` failed", hint="its output is above")


def upload(client: Client, corpora: Path, worlds: Iterable[World]) -> None:
    """Upload the worlds that the service does not have."""
    for world in worlds:
        folder = corpora / world.name
        if find(client, texts.get_corpus(world.name)) is None:
            lines = Sources(paths.corpus_lines(folder / "corpus.jsonl"))
            client.send(texts.upload("corpora", lines, world.name))
        if find(client, texts.get_dataset(world.name)) is None:
            lines = Sources(paths.dataset_lines(folder / "dataset.jsonl"))
            client.send(texts.upload("datasets", lines, world.name))


DATA_DIR = REPOSITORY / ".mathrag" / "reproduction"
DOCS = REPOSITORY / "docs" / "reference"
RESULTS = "world.json"
DECIDED = ("orthogonal", "agreeing")
"""Settings whose first calibration is kept with all scores, for the figure."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="kept, so that the next run continues")
    parser.add_argument("--first-seed", type=int, default=1, help="101 or more for pilots")
    parser.add_argument("--studies", nargs="*", help="only these, and nothing is written; default: all")
    parser.add_argument("--only-write", action="store_true", help="write text and figures from existing results")
    options = parser.parse_args()
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measured = options.scale == "full" and options.first_seed == 1 and not options.studies
    out = DOCS / "results" if measured else options.data_dir / "results" / f"{options.scale}-{options.first_seed}"
    try:
        with report_errors(as_json=False):
            if not options.only_write:
                wanted = studies(SCALES[options.scale], options.first_seed)
                chosen = [study for study in wanted if not options.studies or study.name in options.studies]
                keep(run_studies(chosen, options.data_dir), out)
            if not options.studies:
                write_results(out, DOCS / "reproduction.md" if measured else None)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def run_studies(asked: list[Study], data_dir: Path) -> dict[str, Any]:
    """Run the studies that have not been run, and read all reports.

    Raises:
        Failed: a study failed; the others were run nevertheless.
    """
    worlds = {world.name: world for study in asked for world in study.worlds}
    print(f"{len(asked)} studies in {len(worlds)} worlds; data in {data_dir}", flush=True)
    furnish(data_dir / "corpora", worlds.values())
    found: dict[str, Any] = {}
    failed: list[str] = []
    with serve_stack(data_dir) as client:
        for number, study in enumerate(asked, start=1):
            began = time.monotonic()
            print(f"[{number}/{len(asked)}] {study.name}: {study.about}", flush=True)
            try:
                upload(client, data_dir / "corpora", study.worlds)
                found[study.name] = run_study(client, study)
            except Failed as error:
                failed.append(f"{study.name} ({error.message})")
            print(f"  {study.name}: {time.monotonic() - began:.0f} s", flush=True)
        decisions = {label: decision(client, found[f"main-{label}"]) for label in DECIDED if f"main-{label}" in found}
    if failed:
        raise Failed("internal", f"these studies failed: {'; '.join(failed)}", hint="run it again: the others are done")
    origin = pages.describe_origin(sum(each["seconds"] for each in found.values()))
    return {"about": {**origin, "models": model_files()}, "decisions": decisions, "studies": found}


def run_study(client: Client, study: Study) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "about": study.about,
        "document": study.document(),
        "worlds": [{"name": each.name, "seed": each.seed, "x": each.x} for each in study.worlds],
        **experiments.run(client, study.document(), study.name),
    }
    if comparisons := kept["report"]["comparisons"]:
        del comparisons["datasets"]  # the same once more for each world: three quarters of the report
    if study.name == "main-orthogonal":
        jobs = dict.fromkeys(row["job"] for row in kept["report"]["rows"])
        kept["endings"] = {job: client.send(api.report(job))["endings"] for job in jobs}
    return kept


def decision(client: Client, study: dict[str, Any]) -> Any:
    """Fetch the gate's decision in the study's first world, with all scores."""
    job = next(row["job"] for row in study["report"]["rows"] if row["variant"] == "gate")
    return client.send(api.report(job))["gate"]


def keep(results: dict[str, Any], out: Path) -> None:
    """Write the raw results, without indentation, which would be half of the file."""
    out.mkdir(parents=True, exist_ok=True)
    (out / RESULTS).write_text(json.dumps(results, separators=(",", ":")) + "\n")


def write_results(out: Path, text: Path | None) -> None:
    """Draw figures and print tables from the results; update the numbers of the text if there is one."""
    if not (out / RESULTS).exists():
        raise Failed("not_found", f"{out} has no results", hint="run it without --only-write")
    results = json.loads((out / RESULTS).read_text())
    blocks = world_findings.blocks(results)
    print(f"figures: {', '.join(write_all(world_findings.figures(results), out))}")
    if text is None:
        text = out / "world.md"
        text.write_text("\n\n".join(f"## {name}\n\n{block}" for name, block in blocks.items()) + "\n")
    else:
        text.write_text(rewrite_blocks(text.read_text(), blocks))
        print(f"written: {text}")
    print(f"results: {out}\n\n{blocks['main']}")


if __name__ == "__main__":
    main()
