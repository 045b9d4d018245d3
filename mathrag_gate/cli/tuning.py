"""Tune a model: measure its speed by the number of calls at once, and write the best number into the settings file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryFile

import msgspec
import typer

from mathrag.cli.output import print_json, print_table
from mathrag.client.errors import Failed
from mathrag.errors import Invalid, NotFound
from mathrag.messages import make_hint
from mathrag.places import config_file
from mathrag_gate.cli.connecting import validate
from mathrag_gate.cli.stack import resolve_directory
from mathrag_gate.demo import world
from shared import connecting
from shared.models.tuning import SIZES, Line, Measurement, Problem, SampleCall, Skipped, Workload, choose, is_llama
from shared.params import Params
from shared.rag.prompts import render, template
from shared.replies import Document
from shared.settings import Model, Settings, load

PROMPTS = 1000
"""Different prompts, so that a server does not find whole prompts in its cache as it would not in a job."""
LONG_CONTEXT = 2048
"""Context in tokens from which documents are as long as LONG_WORDS."""
LONG_WORDS = 250
"""Words of a document; the judge's prompt then has about 400 tokens, the mean for the training set of MATH."""
WINDOW_S = 2.0
BAR = 24
"""Characters of the longest bar."""


class TuningResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `mathrag model tune --json`."""

    model: str
    measured: list[Measurement]
    skipped: Skipped | None
    before: int
    """`parallel` in the settings until now."""
    chosen: int
    file: str | None
    """The settings file, if it was changed."""
    notes: list[str]


def tune(name: str, *, write: bool, data_dir: Path | None, as_json: bool, window_s: float = WINDOW_S) -> None:
    """Tune the model `name`, for `mathrag model tune`; `window_s` is the shortest length of a window.

    Raises:
        NotFound, Invalid: no such model is configured, or its number of slots is fixed.
        Failed: the settings are invalid, the device is in use, or the model cannot be loaded or does not answer.
    """
    settings = load()
    model = _require_model(name, settings)
    validate(connecting.read_settings(config_file()))  # now, and not after a minute
    calls = tuple(islice(_make_calls(name, settings), PROMPTS))
    workload = Workload(calls=calls, window_s=window_s)
    measured, skipped = _measure(name, workload, resolve_directory(data_dir), silent=as_json)
    chosen = choose(measured)
    file = _write(name, model, chosen, settings) if write and chosen.slots != model.parallel else None
    result = TuningResult(
        model=name, measured=measured, skipped=skipped, before=model.parallel, chosen=chosen.slots,
        file=str(file) if file else None, notes=list(_list_notes(model, settings, chosen.slots)),
    )  # fmt: skip
    print_json(msgspec.to_builtins(result)) if as_json else _print(result)


def _require_model(name: str, settings: Settings) -> Model:
    model = settings.models.get(name)
    if model is None:
        hint = make_hint(name, settings.models, f"the models are {', '.join(settings.models)}")
        raise NotFound(f"no model {name!r} is configured", hint=hint)
    if model.deterministic and is_llama(model):
        raise Invalid(
            f"model {name!r} is `deterministic`, so it has one slot", hint="remove `deterministic` to tune it"
        )
    return model


def _measure(
    name: str, workload: Workload, directory: Path, *, silent: bool
) -> tuple[list[Measurement], Skipped | None]:
    """Measure the model; show each result on standard error unless `silent`.

    Raises:
        Failed: it cannot be measured.
    """
    measured, skipped = list[Measurement](), None
    if not silent:
        typer.echo(f"Measuring {name} with 1 to {SIZES[-1]} calls at once, about a minute ...", err=True)
    for line in _read_lines(name, workload, directory):
        match line:
            case Problem():
                raise Failed(line.kind, f"{name} cannot be measured: {line.message}", line.hint or None)
            case Skipped():
                skipped = line
            case Measurement():
                measured.append(line)
                if not silent:
                    typer.echo(f"  {line.slots:>2} at once: {line.calls_s:.3g} calls/s", err=True)
    return measured, skipped


def _read_lines(name: str, workload: Workload, directory: Path) -> Iterator[Line]:
    """Yield the lines of the process that measures.

    Raises:
        Failed: the process broke off.
    """
    command = [sys.executable, "-P", "-m", "services.guard", "--tune", name]
    environment = {**os.environ, "MATHRAG_DATA_DIR": str(directory)}
    line: Line | None = None
    with TemporaryFile() as given:
        given.write(msgspec.json.encode(workload))
        given.seek(0)
        with subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, env=environment) as process:  # noqa: S603 - our own command
            for text in process.stdout or ():
                line = msgspec.json.decode(text, type=Line)
                yield line
    if process.returncode and not isinstance(line, Problem):
        raise Failed("internal", f"the measurement ended with status {process.returncode}; its last output is above")


def _make_calls(name: str, settings: Settings) -> Iterator[SampleCall]:
    """Yield calls of the roles that the model has by default, in turn, or of both roles if it has none."""
    model, params, rng = settings.models[name], Params(), Random(0)  # noqa: S311 - the same prompts each time
    roles = [role for role, each in settings.roles.items() if each == name] or list(settings.roles)
    while True:
        operator = world.random_operator(rng, world.TEST_NAMES)
        question = world.item(rng, operator, rng.randrange(10), rng.randrange(10)).question
        for role in roles:
            if role == "judge":
                prompt = render(template("reasoning-quality"), {"document": _write_document(rng, model)})
                yield SampleCall(prompt=prompt, decoding=params.judge.decoding)
            else:
                context = [_write_document(rng, model) for _ in range(params.context_size)]
                prompt = render(template("cot"), {"question": question, "context": context})
                yield SampleCall(prompt=prompt, decoding=params.generate.decoding)


def _write_document(rng: Random, model: Model) -> Document:
    """Write a document of the demo's world; several in one where the model is made for longer texts."""
    words = LONG_WORDS if model.driver == "remote" or model.context >= LONG_CONTEXT else 1
    texts: list[str] = []
    while len(" ".join(texts).split()) < words:
        operator = world.random_operator(rng, world.TEST_NAMES)
        written = world.document(
            rng, operator, "full", world.TEST_TEMPLATES, rng.randrange(10), rng.randrange(10), world.DRESSED
        )
        texts.append(f"{written.problem} {written.text}" if texts else written.text)
    return Document(problem=written.problem, text="\n".join(texts))


def _write(name: str, model: Model, chosen: Measurement, settings: Settings) -> Path:
    """Write the number of slots into the settings file, with the memory that they need if the file declares it.

    Raises:
        Invalid, Failed: the file cannot be changed automatically, or the environment overrides it.
    """
    file, fields = config_file(), {"parallel": chosen.slots}
    if model.footprint_mib and chosen.mib:
        fields["footprint_mib"] = chosen.mib
    changed = connecting.change_model(connecting.read_settings(file), name, fields, settings)
    connecting.write_settings(file, changed)
    if load().models[name].parallel != chosen.slots:
        hint = f"remove MATHRAG_MODELS from the environment, or set `parallel: {chosen.slots}` there"
        raise Failed("invalid", f"{file} was changed, but environment variables override it", hint)
    return file


def _list_notes(model: Model, settings: Settings, chosen: int) -> Iterator[str]:
    """Yield what an operator must know of the chosen number."""
    if model.driver == "ollama":
        yield f"Ollama has as many slots as OLLAMA_NUM_PARALLEL says: set it to {chosen} where `ollama serve` starts"
    if model.driver == "remote":
        yield "`parallel` limits the calls that are sent at once; the server's slots are its operator's"
    most = settings.workers.chunk * settings.workers.streams
    if chosen > most:
        yield f"a worker has at most {most} calls of a model at once: raise `workers.chunk` to {chosen}"
    if model.driver != "remote" and chosen != model.parallel:
        yield "the number of slots is part of a model's identity: new jobs do not reuse replies of earlier ones"


def _print(result: TuningResult) -> None:
    one, best = result.measured[0].calls_s, max(each.calls_s for each in result.measured)
    print_table(
        ("AT ONCE", "CALLS/S", "AGAINST 1", "MIB", ""),
        [
            (
                each.slots,
                f"{each.calls_s:.1f}",
                f"{each.calls_s / one:.2f}",
                each.mib,
                "█" * round(BAR * each.calls_s / best),
            )
            for each in result.measured
        ],
    )
    if result.skipped:
        typer.echo(f"  {result.skipped.slots} and more were not measured: {result.skipped.reason}")
    typer.echo(f"best: `parallel: {result.chosen}`, the fewest within 5 % of the fastest")
    for note in result.notes:
        typer.echo(f"  note: {note}")
    if result.file:
        typer.echo(f"{result.file}: {result.model} has `parallel: {result.chosen}` (before: {result.before})")
        typer.echo("  next: mathrag up --detach")
    else:
        typer.echo(f"nothing was written: {result.model} has `parallel: {result.before}`")
