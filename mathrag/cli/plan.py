"""`mathrag plan`: which models would be resident where, what that costs, and why nothing else is better."""

from typing import Annotated, Any

import typer

from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.parameters import Model, Set, pair, parameters
from mathrag.client import jobs, questions
from mathrag.client.client import Client
from mathrag.client.errors import Failed

HEAD = ("", "DEVICE", "MODELS", "MIB", "BUDGET", "LOAD S", "CALLS S")
OTHERS = ("WAY", "LOADS", "FLIPS", "SECONDS", "REFUSED")

Reference = Annotated[str | None, typer.Argument(help="A job, by id, name or the id's first characters.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="ROLE=PRESET:QUANTISATION",
        help="Instead of a job: a model, such as generate=qwen2.5-7b:q4_k_m; once for every model.",
    ),
]


def plan(
    reference: Reference = None,
    dataset: Annotated[str | None, typer.Option(help="Of a job that is not submitted: what is asked.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="How it is answered.")] = None,
    corpus: Annotated[str | None, typer.Option(help="What is searched.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions of the dataset.")] = None,
    repeats: Annotated[int, typer.Option(help="How often each question is asked.")] = 1,
    settings: Set = None,
    model: Model = None,
    models: Models = None,
    context: Annotated[int, typer.Option(help="With --models: tokens of a slot.")] = 2048,
    parallel: Annotated[int, typer.Option(help="With --models: most slots.")] = 8,
    kv: Annotated[str, typer.Option(help="With --models: the KV cache, f16 or q8_0.")] = "f16",
    calls: Annotated[int, typer.Option(help="With --models: calls of each.")] = 1000,
    budget: Annotated[
        list[int] | None, typer.Option(help="MiB of a GPU in the place of the devices; once for every GPU.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan what is left of a job, a job that is not submitted, or models and GPUs that are not there yet."""
    with reported(as_json=as_json), Client() as client:
        job = _job(dataset, pipeline, corpus, repeats, settings, model)
        if job is not None and limit is not None:
            job["limit"] = limit
        asked = [_model(text, context, parallel, kv, calls) for text in models or []]
        if sum((reference is not None, job is not None, bool(asked))) != 1:
            raise Failed("usage", "plan one of: a job, a job's --dataset and --pipeline, or --models")
        if reference is not None:
            found = client.send(jobs.plan(reference))
        else:
            devices = [{"id": f"gpu:{number}", "budget_mib": mib} for number, mib in enumerate(budget or [])]
            body = {**({"job": job} if job else {"models": asked}), "devices": devices}
            found = client.send(questions.plan(body))
        if as_json:
            print_json(found)
        else:
            print_plan(found)
        if found["chosen"] is None and found["others"]:
            raise typer.Exit(Exit.FINDING)


def _job(
    dataset: str | None, pipeline: str | None, corpus: str | None, repeats: int, settings: Any, model: Any
) -> dict[str, Any] | None:
    """The body of a job; None: none is asked for."""
    if dataset is None and pipeline is None:
        return None
    if dataset is None or pipeline is None:
        raise Failed("usage", "a job needs both --dataset and --pipeline")
    return {
        "name": "plan", "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
        "params": parameters(settings or []), "models": dict(pair(text, "--model") for text in model or []),
    }  # fmt: skip


def _model(text: str, context: int, parallel: int, kv: str, calls: int) -> dict[str, Any]:
    role, named = pair(text, "--models")
    preset, _, quantisation = named.partition(":")
    wanted = {"role": role, "preset": preset, "context": context, "parallel": parallel, "kv": kv, "calls": calls}
    return {**wanted, **({"quantisation": quantisation} if quantisation else {})}


def print_plan(found: Any) -> None:
    """The residencies in order, then what speaks against the other ways."""
    typer.echo(found["why"])
    held = {device: names for device, names in found["resident"].items() if names}
    for device, names in held.items():
        typer.echo(f"  {device} holds {', '.join(names)} now")
    if found["chosen"] is not None:
        residencies = found["chosen"]["residencies"]
        table(HEAD, [_residency(number, residency) for number, residency in enumerate(residencies, 1)])
        for time in sorted({_basis(each) for residency in residencies for each in residency["models"]}):
            typer.echo(f"  {time}")
    if found["others"]:
        typer.echo("Other ways:")
        table(OTHERS, [_other(option) for option in found["others"]])


def _residency(number: int, residency: Any) -> tuple[object, ...]:
    models = [f"{each['name']} x{each['parallel']}" for each in residency["models"]]
    models += ["retrieval"] if residency["retrieval_mib"] else []
    load = "resident" if residency["resident"] else f"{residency['load_s']:.1f}"
    times = (load, f"{residency['service_s']:.1f}")
    return number, residency["device"], " + ".join(models), residency["predicted_mib"], residency["budget_mib"], *times


def _basis(model: Any) -> str:
    """How its figures are known."""
    load, call = model["load_s"], model["call_s"]
    return (
        f"{model['name']}: memory {model['basis']}; a load {load['basis']} ({load['source']});"
        f" a call {call['basis']} ({call['source']})"
    )


def _other(option: Any) -> tuple[object, ...]:
    return option["name"], option["loads"], option["flips"], f"{option['seconds']:.1f}", option["refused"]
