"""Take a graph from its facts to its figures; steps that have been done are not repeated."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mathrag.client import graphs, rules
from mathrag.client import texts as texts_module
from mathrag.client.client import Client
from mathrag.client.request import MOST_OF_A_PAGE
from mathrag.client.texts import QuestionSet
from mathrag.client.uploads import Sources
from shared import canonical
from shared.ingest import graph_paths
from world.experiments import find
from world.release import fingerprint
from world.rule_reproduction import measuring, parts, tuning
from world.rule_reproduction.serving import FILE, command, searched_with, serve_stack
from world.rule_reproduction.setting import Arm, Graph, Setting
from world.rule_reproduction.tuning import Tuned

Json = dict[str, Any]


class Run(NamedTuple):
    """The inputs and places of one graph's run."""

    setting: Setting
    graph: Graph
    folder: Path
    """Folder of everything that the run makes."""
    files: Mapping[str, Path]
    """Files of facts by part."""
    name: str
    """Name of graph, corpus and bank, and prefix of the question sets' names."""
    trainer: str
    """The Python that tunes the generator."""

    @property
    def names(self) -> dict[str, str]:
        """Names in the service of graph, corpus, bank and question set."""
        return {"corpus": self.name, "rules": self.name, "dataset": f"{self.name}-test"}

    @property
    def training(self) -> str:
        """Name of the question set that models are tuned on."""
        return f"{self.name}-training"


def start_run(label: str, setting: Setting, data: Path, out: Path, trainer: str) -> Run:
    """Start the run of a graph; the names of its folder and objects have a digest of all its inputs.

    Raises:
        Invalid: its facts are not there.
    """
    graph = setting.graphs[label]
    sources = [fingerprint(file) for file in parts.sources(graph, data)]
    made_of = msgspec.to_builtins([graph, setting.questions, setting.tuning, sources, fingerprint(FILE)])
    name = f"{label}-{canonical.digest(made_of).hex()[:8]}"
    return Run(setting, graph, out / name, parts.write(graph, data, out / name / "facts"), name, trainer)


def measure_graph(run: Run) -> Json:
    """Measure all figures of the graph.

    Raises:
        Failed: a step did; the same command goes on from there.
    """
    seconds: dict[str, float] = {}
    about, tuned = tune(run, seconds)
    jobs: dict[str, str] = {}
    read: Json = {}
    for embeddings in ("shipped", "tuned"):
        with (
            measure_time(seconds, f"arms, {embeddings} retriever"),
            serve_stack(run.folder, tuned.places, embeddings) as client,
        ):
            jobs |= _run_arms(client, run, tuned.places, embeddings)
            if embeddings == "tuned":
                read = _read(client, run, jobs)
    return {
        **about,
        **read,
        "left_out": tuned.left_out,
        "tuning": tuning.records(tuned),
        "models": models(tuned.places, "tuned"),
        "seconds": seconds,
    }


def tune(run: Run, seconds: dict[str, float]) -> tuple[Json, Tuned]:
    """Make the question sets and tuned models that the arms need; adds to `seconds`.

    Raises:
        Failed: a step did.
    """
    with measure_time(seconds, "graph, rules and questions"), serve_stack(run.folder, {}) as client:
        about = prepare(client, run)
    with measure_time(seconds, "tuning"):
        return about, tuning.tune_models(run.folder, run.setting.tuning, run.trainer)


def _run_arms(client: Client, run: Run, places: Mapping[str, Path], embeddings: str) -> dict[str, str]:
    """Run the arms that search with these embeddings; return jobs by arm."""
    client.send(texts_module.index(run.name))
    arms = [arm for arm in run.setting.arms if arm.embeddings == embeddings and _has(places, arm)]
    document = measuring.document(run.setting.common(run.graph), arms, run.names, models(places, embeddings))
    return measuring.run(client, document, f"{run.name}, {embeddings} retriever")


def _read(client: Client, run: Run, jobs: Mapping[str, str]) -> Json:
    """Read the results, with arms in the settings' order."""
    ordered = {arm.name: jobs[arm.name] for arm in run.setting.arms if arm.name in jobs}
    return measuring.read(client, run.setting, ordered)


def _has(tuned: Mapping[str, Path], arm: Arm) -> bool:
    """Whether all models that the arm needs are tuned."""
    needed = {"embeddings": arm.embeddings, "generator": arm.generator}
    return all(what in tuned for what, which in needed.items() if which == "tuned")


def models(tuned: Mapping[str, Path], embeddings: str) -> dict[str, str]:
    """Hash the models that answer and search."""
    files = {"generator": FILE, **({"tuned generator": tuned["generator"]} if "generator" in tuned else {})}
    folder = searched_with(tuned, embeddings)
    files |= {f"vectors {file.name}": file for file in sorted(folder.iterdir()) if file.is_file()}
    return {name: fingerprint(file) for name, file in files.items()}


@contextmanager
def measure_time(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Add the seconds of the block to those of the step."""
    began = time.monotonic()
    yield
    seconds[step] = seconds.get(step, 0) + time.monotonic() - began


def prepare(client: Client, run: Run) -> Json:
    """Create what the service lacks: the graph, its rules, and question sets to measure with and to tune on.

    Returns:
        What the graph holds, and what is asked about it.
    """
    if find(client, graphs.get(run.name)) is None:
        command("graph", "create", run.name, "--from", str(run.files["facts"]))
    _mine(run)
    only = {"unanswered": "true"} if run.graph.unanswered else {}
    test = _ask(client, run, run.names["dataset"], run.files["test"], run.setting.questions, **only)
    apart = run.folder / "facts" / "training-apart.tsv"
    entries = client.all(texts_module.entries("datasets", run.names["dataset"], MOST_OF_A_PAGE))
    parts.without_asked(run.files["training"], {item["question"] for item in entries}, apart)
    training = _ask(client, run, run.training, apart, run.setting.tuning.questions)
    tuning.export(run.training, run.name, run.folder, run.setting.tuning)
    return describe_graph(client, run, test, training)


def _mine(run: Run) -> None:
    """Mine the rules by the command line; the same bank is mined once."""
    limits = msgspec.to_builtins(run.graph.mining)
    options = [part for limit, value in limits.items() for part in _option(limit, value)]
    command("rules", "mine", "--graph", run.name, "--name", run.name, *options, "--wait")


def _option(limit: str, value: object) -> list[str]:
    name = f"--{limit.replace('_', '-')}"
    if isinstance(value, bool):
        return [name] if value else []
    return [name, str(value)]


def _ask(client: Client, run: Run, name: str, facts: Path, limit: int, **only: str) -> QuestionSet:
    """Create a question set of held-out facts; the same one is stored once."""
    lines = Sources(graph_paths.fact_lines(facts, []))
    request = texts_module.from_graph(name, run.name, lines, rules=run.name, limit=limit, grader="f1", **only)
    made = client.send(request)
    print(f"  {name}: {made['items']:,} questions, {made['counts']}", flush=True)
    return made


def describe_graph(client: Client, run: Run, test: QuestionSet, training: QuestionSet) -> Json:
    """Count the contents of the graph and of its question sets."""
    graph, bank = client.send(graphs.get(run.name)), client.send(rules.get(run.name))
    return {
        "title": run.graph.title, "miner": bank["miner"], "rules": bank["rules"],
        **{key: graph[key] for key in ("facts", "entities", "relations")},
        "questions": test["items"], "counts": test["counts"], "training": training["items"],
    }  # fmt: skip
