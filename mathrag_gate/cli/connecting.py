"""Connect a model: try it with one prompt, then add it to the settings file."""

import asyncio
import io
import os
import shlex
import time
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Literal

import typer

from mathrag.cli import progress
from mathrag.cli.output import print_json, print_table
from mathrag.client import jobs, service, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.formatting import take_last_line
from mathrag.places import config_file
from mathrag_gate.cli.config import check
from mathrag_gate.cli.stack import resolve_directory
from mathrag_gate.cli.up import own_stack, set_environment
from mathrag_gate.stack import control
from shared import connecting
from shared.connecting import ROLES, NewModel
from shared.models.ollama import DEFAULT_URL
from shared.settings import Settings, load

QUESTION = "What is 17 + 25? Answer with one sentence."
DUTIES = {"judge": "rates documents", "generate": "writes answers"}
SERVED_S = 120.0
"""Longest wait in seconds for the guard to register the model; it first hashes a file, which may be large."""
POLL_S = 0.5
SERVERS = ("MATHRAG_DATABASE_URL", "MATHRAG_REDIS_URL", "MATHRAG_GUARD_URL")
"""Environment variables with servers of another stack; if one is set, no second stack is started for a trial."""


def print_models(folder: Path | None, ollama: str | None, *, as_json: bool) -> None:
    """Print the models that could be connected: Ollama's models, and GGUF files."""
    found = asyncio.run(connecting.find_models([folder] if folder else [], ollama or DEFAULT_URL))
    if as_json:
        print_json(found)
        return
    if not found:
        raise Failed(
            "not_found",
            "no model was found: no Ollama server answers, and the usual folders contain no GGUF file",
            hint="run ollama pull qwen2.5:7b, or name the folder of a file with --folder, or an address:"
            " mathrag model connect https://models.example.org/v1",
        )
    print_table(("MODEL", "WHERE", "MIB"), [(each.what, each.source, each.mib) for each in found])
    typer.echo(f"  next: mathrag model connect {shlex.quote(found[0].what)}")


def connect(
    what: str,
    role: Literal["both", "generate", "judge"],
    *,
    served: str | None,
    api_key_env: str | None,
    ollama: str | None,
    untried: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Connect the model that `what` names, for `mathrag model connect`.

    Raises:
        Invalid, Unavailable: the model does not exist, or gives no answer.
        Conflict: another model has the same name.
    """
    described = asyncio.run(
        connecting.describe_model(what, served=served, api_key_env=api_key_env, ollama_url=ollama or DEFAULT_URL)
    )
    roles = ROLES if role == "both" else (role,)
    file, settings = config_file(), load()
    changed = connecting.add_model(connecting.read_settings(file), described, roles, settings)
    validate(changed)
    directory = resolve_directory(data_dir)
    running = control.find_holder(directory) is not None
    reply = None
    if not (untried or running or any(map(os.environ.get, SERVERS))):
        if not as_json:
            typer.echo(f"Trying {described.name} with one prompt, on a temporary stack ...")
        reply = _try_model(described, settings)
    connecting.write_settings(file, changed)
    again = [f"mathrag down --data-dir {shlex.quote(str(directory))}"] * running + ["mathrag up --detach"]
    if reply is None:
        again.append(f"mathrag chat {shlex.quote(QUESTION)}")
    if as_json:
        print_json({"file": str(file), "name": described.name, "roles": roles, "reply": reply, "next": again})
        return
    typer.echo(f"  asked     {QUESTION}\n  answered  {reply}" if reply is not None else "  The model was not tried.")
    typer.echo(f"{file}: by default, {described.name} {' and '.join(DUTIES[each] for each in roles)}")
    typer.echo(f"  next: {' && '.join(again)}")


def validate(text: str) -> None:
    """Check the new settings.

    Raises:
        Failed: the new settings are invalid.
    """
    with NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        with set_environment(MATHRAG_CONFIG=file.name):
            for problem in check(Path(file.name)):
                raise Failed("invalid", f"`{problem.key}`: {problem.message}", hint=problem.fix)


def _try_model(described: NewModel, settings: Settings) -> str:
    """Return the model's answer to `QUESTION`, from a stack with only this model."""
    configuration: dict[str, Any] = {
        "models": {described.name: described.fields},
        "roles": dict.fromkeys(ROLES, described.name),
        "device": {
            **settings.device.model_dump(mode="json", exclude_unset=True),
            "budget_mib": max(described.mib, settings.device.budget_mib),
        },
    }
    with (
        TemporaryDirectory(prefix="mathrag-") as folder,
        redirect_stdout(io.StringIO()),
        own_stack(Path(folder), configuration, keep=False),
        Client() as client,
    ):
        deadline = time.monotonic() + SERVED_S
        while not all(model["registered"] for model in client.send(service.models())):
            if time.monotonic() > deadline:
                problem = next(check for check in client.send(service.checks())["checks"] if not check["ok"])
                raise Failed("unavailable", f"{described.name} is not served: {problem['detail']}", problem["fix"])
            time.sleep(POLL_S)
        asked = {"question": QUESTION, "pipeline": "closed-book", "wait_s": 0}
        job = client.send(texts.chat(asked))["job"]
        progress.watch(client, job, progress.Silent())
        sample = client.send(jobs.sample(job, 0))
    if sample["failure"]:
        problem = f"{described.name} gave no answer: {sample['failure']}: {take_last_line(sample['detail'])}"
        raise Failed(
            "unavailable", problem, hint="read the log of its server; --untried connects the model without a trial"
        )
    return str(sample["text"]).strip()
