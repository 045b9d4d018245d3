"""`mathrag plan`: show which models would be resident where, the cost, and why the alternatives are worse."""

from typing import Annotated, Any

import typer

from mathrag.cli.output import (
    AsJson,
    Exit,
    Model,
    Set,
    parse_parameters,
    print_json,
    print_table,
    report_errors,
    split_pair,
)
from mathrag.client import jobs, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed

HEAD = ("", "DEVICE", "MODELS", "MIB", "BUDGET", "LOAD S", "CALLS S")
OTHERS = ("OPTION", "LOADS", "FLIPS", "SECONDS", "REFUSED")

Reference = Annotated[
    str | None, typer.Argument(help="Submitted job: name, id, or the first characters of the id (four or more).")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="ROLE=PRESET:QUANTISATION",
        help="Instead of a job: model of a role, such as generate=qwen2.5-7b:q4_k_m; repeat for every role.",
    ),
]


def plan(
    reference: Reference = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset of a job that is not submitted yet.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Pipeline of that job.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Corpus that the job searches.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of questions, from the first (default: all).")
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often each question is asked.")] = 1,
    settings: Set = None,
    model: Model = None,
    models: Models = None,
    context: Annotated[int, typer.Option(help="With --models: context length of a slot, in tokens.")] = 2048,
    parallel: Annotated[int, typer.Option(help="With --models: largest number of slots of a model.")] = 8,
    kv: Annotated[str, typer.Option(help="With --models: type of the KV cache, f16 or q8_0.")] = "f16",
    calls: Annotated[int, typer.Option(help="With --models: number of calls to each model.")] = 1000,
    budget: Annotated[
        list[int] | None,
        typer.Option(help="Memory of a GPU in MiB, to plan for instead of the devices; repeat for every GPU."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan model loads and time for a job, for a job not yet submitted, or for models and GPUs not yet installed."""
    with report_errors(as_json=as_json), Client() as client:
        job = _make_job(dataset, pipeline, corpus, repeats, settings, model)
        if job is not None and limit is not None:
            job["limit"] = limit
        hypothetical_models = [_parse_model(text, context, parallel, kv, calls) for text in models or []]
        if sum((reference is not None, job is not None, bool(hypothetical_models))) != 1:
            raise Failed("usage", "give exactly one of: a job, --dataset with --pipeline, or --models")
        if reference is not None:
            found = client.send(jobs.plan(reference))
        else:
            devices = [{"id": f"gpu:{number}", "budget_mib": mib} for number, mib in enumerate(budget or [])]
            body = {**({"job": job} if job else {"models": hypothetical_models}), "devices": devices}
            found = client.send(texts.plan(body))
        if as_json:
            print_json(found)
        else:
            print_plan(found)
        if found["chosen"] is None and found["others"]:
            raise typer.Exit(Exit.FINDING)


def _make_job(
    dataset: str | None, pipeline: str | None, corpus: str | None, repeats: int, settings: Any, model: Any
) -> dict[str, Any] | None:
    """Return the body of the unsubmitted job; None if no job is described."""
    if dataset is None and pipeline is None:
        return None
    if dataset is None or pipeline is None:
        raise Failed("usage", "a job needs both --dataset and --pipeline")
    return {
        "name": "plan", "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
        "params": parse_parameters(settings or []), "models": dict(split_pair(text, "--model") for text in model or []),
    }  # fmt: skip


def _parse_model(text: str, context: int, parallel: int, kv: str, calls: int) -> dict[str, Any]:
    role, model = split_pair(text, "--models")
    preset, _, quantisation = model.partition(":")
    wanted = {"role": role, "preset": preset, "context": context, "parallel": parallel, "kv": kv, "calls": calls}
    return {**wanted, **({"quantisation": quantisation} if quantisation else {})}


def print_plan(found: Any) -> None:
    """Print the residencies in order, then why the other options are worse."""
    typer.echo(found["why"])
    residents = {device: names for device, names in found["resident"].items() if names}
    for device, names in residents.items():
        typer.echo(f"  {device} holds {', '.join(names)} now")
    if found["chosen"] is not None:
        residencies = found["chosen"]["residencies"]
        print_table(HEAD, [_make_residency_row(number, residency) for number, residency in enumerate(residencies, 1)])
        for time in sorted({_describe_basis(each) for residency in residencies for each in residency["models"]}):
            typer.echo(f"  {time}")
    if found["others"]:
        typer.echo("Other options:")
        print_table(OTHERS, [_make_option_row(option) for option in found["others"]])


def _make_residency_row(number: int, residency: Any) -> tuple[object, ...]:
    models = [f"{each['name']} x{each['parallel']}" for each in residency["models"]]
    models += ["retrieval"] if residency["retrieval_mib"] else []
    load = "resident" if residency["resident"] else f"{residency['load_s']:.1f}"
    times = (load, f"{residency['service_s']:.1f}")
    return number, residency["device"], " + ".join(models), residency["predicted_mib"], residency["budget_mib"], *times


def _describe_basis(model: Any) -> str:
    """Return how the memory and times of a model are known, with the source of each."""
    load, call = model["load_s"], model["call_s"]
    return (
        f"{model['name']}: memory {model['basis']}; a load {load['basis']} ({load['source']});"
        f" a call {call['basis']} ({call['source']})"
    )


def _make_option_row(option: Any) -> tuple[object, ...]:
    return option["name"], option["loads"], option["flips"], f"{option['seconds']:.1f}", option["refused"]
