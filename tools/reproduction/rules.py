"""``make reproduce-rules``: measure every arm on every graph, then write results, figures and the numbers in the text.

    .venv/bin/python -m tools.reproduction.rules --data DIR [--out DIR] [--questions N] [--graph NAME] [--trainer PY]

Steps with the same facts, settings and models are not repeated, also after an interruption. Results of
the committed settings on all graphs go to docs/reference/results, and docs/reference/rule-reproduction.md is rewritten.
Other results stay in the folder of --out.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from mathrag.cli.output import report_errors
from mathrag.client import graphs, rules, texts
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE
from mathrag.client.service import summarise_audit
from mathrag.client.uploads import Sources
from mathrag.reading import graph_paths
from mathrag_gate.cli.up import own_stack
from shared import canonical
from shared.pages.figures import write_all
from shared.pages.pages import rewrite_blocks
from shared.settings import REPOSITORY
from tools.reproduction import experiments, pages, rule_findings, rule_setting
from tools.reproduction.experiments import find
from tools.reproduction.rule_setting import MEASURES, Arm, Graph, Setting, Tuning
from tools.world.release import fingerprint

# Run a stack for each graph, configured for the available models; environment variables lead commands to it.

MODELS = REPOSITORY / "models"
GENERATORS = {"shipped": "rules-generator", "tuned": "rules-generator-tuned"}
"""Names of models by the arm's choice."""
GENERATOR = MODELS / "rules-generator-f16.gguf"
EMBEDDINGS = MODELS / "static-embeddings"
ANSWER_S = 600.0
"""Long, because a comparison reads every sample of its jobs."""


@contextmanager
def serve_stack(folder: Path, tuned: Mapping[str, Path], embeddings: str = "shipped") -> Iterator[Client]:
    """Run the folder's stack, and stop it at the end.

    Args:
        tuned: places of the tuned models, by `generator` (a file) and `embeddings` (a folder).
        embeddings: "shipped" or "tuned", by which questions are searched for.
    """
    with own_stack(folder, configuration(tuned, embeddings), keep=False), Client(timeout_s=ANSWER_S) as client:
        yield client


def configuration(tuned: Mapping[str, Path], embeddings: str) -> dict[str, Any]:
    """Write a stack's settings; models are identified by their bytes, so that no reply is reused for another model."""
    files = {GENERATORS["shipped"]: GENERATOR}
    if "generator" in tuned:
        files[GENERATORS["tuned"]] = tuned["generator"]
    models = {"world-judge": MODELS / "world-judge-f16.gguf", **files}
    return {
        "models": {
            name: {"driver": "process", "path": str(path), "footprint_mib": 96} for name, path in models.items()
        },
        "roles": {"judge": "world-judge", "generate": GENERATORS["shipped"]},
        "retrieval": {"embeddings": {"kind": "static", "path": str(searched_with(tuned, embeddings))}},
    }


def searched_with(tuned: Mapping[str, Path], embeddings: str) -> Path:
    return tuned["embeddings"] if embeddings == "tuned" else EMBEDDINGS


def command(*arguments: str, python: str = sys.executable, module: str = "mathrag.cli.main") -> None:
    """Print and run a command.

    Raises:
        Failed: it did; its words are on the terminal.
    """
    command_line = " ".join(arguments)
    print(f"  $ {'mathrag' if module == 'mathrag.cli.main' else f'python -m {module}'} {command_line}", flush=True)
    ended = subprocess.run([python, "-m", module, *arguments], cwd=REPOSITORY, check=False)
    if ended.returncode:
        raise Failed("unavailable", f"`{arguments[0]}` ended with {ended.returncode}", hint="its output is above")


Json = dict[str, Any]
Jobs = Mapping[str, str]
"""Ids of jobs by their arm."""
KEPT = ("items", "gained", "lost", "p", "adjusted", "separable", "difference", "words")
"""Fields of a pair to keep."""
COST = ("seconds", "model_loads", "calls_made", "calls_reused", "failures", "fallbacks", "truncated")
"""Fields of a job's report to keep."""


def write_experiment(params: Json, arms: Iterable[Arm], names: Mapping[str, str], models: object) -> Json:
    """Write the arms as the body of `POST /v1/experiments`; its name has a digest of all inputs.

    Args:
        params: of all of them.
        names: the service's names of the graph (`corpus`, `rules`) and its questions (`dataset`).
        models: the digests of everything that answers.
    """
    request = {
        "datasets": [{"dataset": names["dataset"], "corpus": names["corpus"]}],
        "variants": [
            {"name": arm.name, "pipeline": arm.pipeline, "params": arm.params,
             "models": {"generate": GENERATORS[arm.generator]}}
            for arm in arms
        ],
        "params": {**params, "rules": names["rules"]},
    }  # fmt: skip
    return {"name": f"{names['corpus']}-{canonical.digest([request, models]).hex()[:8]}", **request}


def read_measures(client: Client, setting: Setting, jobs: Jobs) -> Json:
    """Read the results of a graph's jobs."""
    scores: Json = {}
    pairs: Json = {}
    for measure in MEASURES:
        pairs[measure] = {}
        for baseline in setting.baselines:
            compared = client.send(api.compare(list(jobs.values()), baseline=jobs[baseline], measure=measure))
            names = {job: arm for arm, job in jobs.items()}
            arms = {each["name"]: names[each["jobs"][0]] for each in compared["jobs"]}
            pairs[measure][baseline] = {arms[each["left"]]: _keep(each, KEPT) for each in compared["pairs"]}
            scores[measure] = {
                arms[each["name"]]: {"items": each["items"], **_keep(each["measured"], ("value", "low", "high"))}
                for each in compared["jobs"]
            }
    costs: Json = {}
    for arm, job in jobs.items():
        audit = summarise_audit(client.send(api.audit(job))["violations"])
        costs[arm] = {"job": job, "audit": audit, **_keep(client.send(api.report(job)), COST)}
    return {"scores": scores, "pairs": pairs, "arms": costs}


def _keep(of: Json, fields: Iterable[str]) -> Json:
    return {field: of[field] for field in fields}


PAIRS, MESSAGES = "pairs", "messages"
"""Kinds of training data, by their names in `mathrag dataset training-data`."""
MERGED = "merged.gguf"
TENTH = 10
NEEDED = ("torch", "peft", "transformers", "gguf")
"""Packages that LoRA needs, from the extra `train`."""


class Tuned(NamedTuple):
    """The tuned models, and the reasons why others are missing."""

    places: dict[str, Path]
    """Paths: `embeddings` is a folder, `generator` a file."""
    left_out: dict[str, str]
    """Reason why a model was not tuned."""


def export(dataset: str, bank: str, folder: Path, setting: Tuning) -> None:
    """Write the training data of the service's dataset, unless it is there."""
    limits = {PAIRS: setting.questions, MESSAGES: setting.examples}
    for kind, limit in limits.items():
        if not (place := _data(folder, kind)).exists():
            options = ["--rules", bank, "--as", kind, "--limit", str(limit), "--out", str(place)]
            command("dataset", "training-data", dataset, *options)


def tune_models(folder: Path, setting: Tuning, trainer: str) -> Tuned:
    """Tune models that are not tuned yet; the generator only if `trainer` has the packages."""
    place = folder / "tuned-embeddings"
    if not place.exists():
        pairs = [str(_data(folder, PAIRS)), "--out", str(place), "--embeddings", str(EMBEDDINGS)]
        command(*pairs, *_to_arguments(setting.retriever), module="tools.embeddings")
    places = {"embeddings": place}
    program = f"import importlib.util as u, json; print(json.dumps([n for n in {NEEDED!r} if u.find_spec(n) is None]))"
    completed = subprocess.run([trainer, "-c", program], capture_output=True, text=True, check=True)
    if missing := json.loads(completed.stdout):
        lacks = f"{trainer} lacks {', '.join(missing)}, which the extra `train` has"
        return Tuned(places, {"generator": lacks})
    place = folder / "tuned-generator"
    if not (place / MERGED).exists():
        # A tenth of the lines chooses the epoch, the others are learnt from; each question has one line.
        lines = _data(folder, MESSAGES).read_text("utf-8").splitlines(keepends=True)
        data, dev = folder / "lora-train.jsonl", folder / "lora-dev.jsonl"
        dev.write_text("".join(lines[::TENTH]), "utf-8")
        data.write_text("".join(line for at, line in enumerate(lines) if at % TENTH), "utf-8")
        files = ["--base", str(GENERATOR), "--data", str(data), "--dev", str(dev), "--out", str(place)]
        command(*files, *_to_arguments(setting.generator), python=trainer, module="tools.world.lora")
    return Tuned({**places, "generator": place / MERGED}, {})


def _data(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.jsonl"


def records(tuned: Tuned) -> dict[str, Any]:
    files = {
        what: place / "tuning.json" if what == "embeddings" else place.with_name("lora.json")
        for what, place in tuned.places.items()
    }
    return {what: json.loads(file.read_text("utf-8")) for what, file in files.items()}


def _to_arguments(options: dict[str, Any]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


# Take a graph from its facts to its figures; steps that have been done are not repeated.


class GraphRun(NamedTuple):
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


def start_run(label: str, setting: Setting, data: Path, out: Path, trainer: str) -> GraphRun:
    """Start the run of a graph; the names of its folder and objects have a digest of all its inputs.

    Raises:
        Invalid: its facts are not there.
    """
    graph = setting.graphs[label]
    sources = [fingerprint(file) for file in rule_setting.sources(graph, data)]
    made_of = msgspec.to_builtins([graph, setting.questions, setting.tuning, sources, fingerprint(GENERATOR)])
    name = f"{label}-{canonical.digest(made_of).hex()[:8]}"
    return GraphRun(setting, graph, out / name, rule_setting.write(graph, data, out / name / "facts"), name, trainer)


def measure_graph(run: GraphRun) -> Json:
    """Measure all figures of the graph.

    Raises:
        Failed: a step failed; the same command continues from there.
    """
    seconds: dict[str, float] = {}
    about, tuned = tune_graph(run, seconds)
    jobs: dict[str, str] = {}
    read: Json = {}
    for embeddings in ("shipped", "tuned"):
        with (
            measure_time(seconds, f"arms, {embeddings} retriever"),
            serve_stack(run.folder, tuned.places, embeddings) as client,
        ):
            client.send(texts.index(run.name))
            missing = {what for what in ("embeddings", "generator") if what not in tuned.places}
            arms = [
                arm
                for arm in run.setting.arms
                if arm.embeddings == embeddings and not any(getattr(arm, what) == "tuned" for what in missing)
            ]
            used = models(tuned.places, embeddings)
            experiment = write_experiment(run.setting.common(run.graph), arms, run.names, used)
            found = experiments.run(client, experiment, f"{run.name}, {embeddings} retriever")
            jobs |= {row["variant"]: row["job"] for row in found["report"]["rows"]}
            if embeddings == "tuned":
                ordered = {arm.name: jobs[arm.name] for arm in run.setting.arms if arm.name in jobs}
                read = read_measures(client, run.setting, ordered)
    return {
        **about, **read, "left_out": tuned.left_out, "tuning": records(tuned),
        "models": models(tuned.places, "tuned"), "seconds": seconds,
    }  # fmt: skip


def tune_graph(run: GraphRun, seconds: dict[str, float]) -> tuple[Json, Tuned]:
    """Make the question sets and tuned models that the arms need; adds to `seconds`."""
    with measure_time(seconds, "graph, rules and questions"), serve_stack(run.folder, {}) as client:
        about = prepare(client, run)
    with measure_time(seconds, "tuning"):
        return about, tune_models(run.folder, run.setting.tuning, run.trainer)


def models(tuned: Mapping[str, Path], embeddings: str) -> dict[str, str]:
    files = {"generator": GENERATOR, **({"tuned generator": tuned["generator"]} if "generator" in tuned else {})}
    folder = searched_with(tuned, embeddings)
    files |= {f"vectors {file.name}": file for file in sorted(folder.iterdir()) if file.is_file()}
    return {name: fingerprint(file) for name, file in files.items()}


@contextmanager
def measure_time(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Add the seconds of the block to those of the step."""
    began = time.monotonic()
    yield
    seconds[step] = seconds.get(step, 0) + time.monotonic() - began


def prepare(client: Client, run: GraphRun) -> Json:
    """Create missing objects in the service: the graph, its rules, and question sets to measure with and to tune on.

    Returns:
        Counts of the graph and of its questions.
    """
    if find(client, graphs.get(run.name)) is None:
        command("graph", "create", run.name, "--from", str(run.files["facts"]))
    mine(run)
    only = {"unanswered": "true"} if run.graph.unanswered else {}
    test = _ask(client, run, run.names["dataset"], run.files["test"], run.setting.questions, **only)
    apart = run.folder / "facts" / "training-apart.tsv"
    entries = client.all(texts.items(run.names["dataset"]).with_limit(MOST_OF_A_PAGE))
    rule_setting.without_asked(run.files["training"], {item["question"] for item in entries}, apart)
    training = _ask(client, run, run.training, apart, run.setting.tuning.questions)
    export(run.training, run.name, run.folder, run.setting.tuning)
    graph, bank = client.send(graphs.get(run.name)), client.send(rules.get(run.name))
    return {
        "title": run.graph.title, "miner": bank["miner"], "rules": bank["rules"],
        **{key: graph[key] for key in ("facts", "entities", "relations")},
        "questions": test["items"], "counts": test["counts"], "training": training["items"],
    }  # fmt: skip


def mine(run: GraphRun) -> None:
    """Mine the graph's rules by the command line; the same bank is mined once."""
    options = []
    for limit, value in msgspec.to_builtins(run.graph.mining).items():
        name = f"--{limit.replace('_', '-')}"
        if isinstance(value, bool):
            options += [name] if value else []
        else:
            options += [name, str(value)]
    command("rules", "mine", "--graph", run.name, "--name", run.name, *options, "--wait")


def _ask(client: Client, run: GraphRun, name: str, facts: Path, limit: int, **only: str) -> Json:
    """Create a question set of held-out facts; the same one is stored once."""
    lines = Sources(graph_paths.fact_lines(facts, []))
    request = texts.from_graph(name, run.name, lines, rules=run.name, limit=limit, grader="f1", **only)
    made = client.send(request)
    print(f"  {name}: {made['items']:,} questions, {made['counts']}", flush=True)
    return made


OUT = REPOSITORY / ".mathrag" / "rule-reproduction"
DOCS = REPOSITORY / "docs" / "reference"
PAGE = DOCS / "rule-reproduction.md"
RESULTS = "rules.json"


def main() -> None:
    options = parse_arguments()
    # An end from outside must also stop the stack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = rule_setting.read_setting()
    names = options.graph or list(asked.graphs)
    measured = not options.questions and names == list(asked.graphs)
    if options.questions:
        few = msgspec.structs.replace(asked.tuning, questions=options.questions, examples=options.questions)
        asked = msgspec.structs.replace(asked, questions=options.questions, tuning=few)
    try:
        with report_errors(as_json=False):
            if measured and not options.only_write and pages.is_changed(rule_setting.SETTINGS):
                problem = f"{rule_setting.SETTINGS.name} differs from the committed version"
                raise Failed("conflict", problem, hint="commit it first; a trial takes --questions N")
            folder = DOCS / "results" if measured else options.out / "results"
            if options.only_tune:
                tune(asked, names, options)
                return
            if not options.only_write:
                keep(measure_graphs(asked, names, options), folder)
            write_results(folder, docs=measured)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kinship/ and icews14/")
    parser.add_argument("--out", type=Path, default=OUT, help="kept, so that the next run continues")
    parser.add_argument("--questions", type=int, help="number of questions for a trial, written to --out")
    parser.add_argument(
        "--graph", action="append", choices=list(rule_setting.read_setting().graphs), help="only this one: a trial"
    )
    parser.add_argument("--trainer", default=sys.executable, help="Python with the extra `train`, for the generator")
    parser.add_argument("--only-tune", action="store_true", help="graphs, rules, questions and tuned models, no arm")
    parser.add_argument("--only-write", action="store_true", help="write text and figures from existing results")
    return parser.parse_args()


def tune(asked: Setting, names: list[str], options: argparse.Namespace) -> None:
    """Tune the models that the arms need; the next run finds them."""
    for name in names:
        run = start_run(name, asked, options.data, options.out, options.trainer)
        _, tuned = tune_graph(run, {})
        print(f"{run.name}: {', '.join(map(str, tuned.places.values()))} {tuned.left_out or ''}")


def measure_graphs(asked: Setting, names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure every graph.

    Raises:
        Failed: a graph's steps did; the others' were done.
    """
    graphs, failed = {}, []
    for name in names:
        print(f"{asked.graphs[name].title}: {asked.questions:,} questions, {len(asked.arms)} arms", flush=True)
        try:
            run = start_run(name, asked, options.data, options.out, options.trainer)
            graphs[name] = measure_graph(run)
        except Failed as error:
            failed.append(f"{name} ({error.message})")
    if failed:
        raise Failed("internal", f"failed: {'; '.join(failed)}", hint="run it again: the rest is done")
    origin = {
        **pages.describe_origin(sum(sum(graph["seconds"].values()) for graph in graphs.values())),
        "settings_commit": pages.commit(rule_setting.SETTINGS),
        "settings_changed": pages.is_changed(rule_setting.SETTINGS),
        "code_changed": pages.is_changed(REPOSITORY),
        "generator": fingerprint(GENERATOR),
    }
    return {"about": origin, "setting": msgspec.to_builtins(asked), "graphs": graphs}


def keep(results: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS).write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def write_results(folder: Path, *, docs: bool) -> None:
    """Write tables and figures from the results; those of a trial go to the folder of its results."""
    if not (folder / RESULTS).exists():
        raise Failed("not_found", f"{folder} has no results", hint="run it without --only-write")
    results = json.loads((folder / RESULTS).read_text("utf-8"))
    blocks = rule_findings.blocks(results)
    page = PAGE if docs else folder / PAGE.name
    page.write_text(rewrite_blocks(PAGE.read_text("utf-8"), blocks), "utf-8")
    drawn = write_all(rule_findings.figures(results), DOCS / "figures" if docs else folder / "figures")
    print(f"figures: {', '.join(drawn)}\nwritten: {page}\n\n{blocks['claims']}")


if __name__ == "__main__":
    main()
