"""`mathrag plan`: show the planned model loads of a job, their memory and time, and why the alternatives are worse."""

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
    split_pairs,
)
from mathrag.cli.references import PromptOption, QuestionLimit, Repeats, parse_prompts
from mathrag.client import jobs, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed

HEAD = ("", "DEVICE", "MODELS", "MIB", "BUDGET", "LOAD S", "CALLS S")
OTHERS = ("OPTION", "LOADS", "FLIPS", "SECONDS", "REFUSED")

Reference = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Submitted job: name, id, or the first characters of the id (four or more)."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="ROLE=PRESET:QUANTISATION",
        help="Plan for a model without a job, such as generate=qwen2.5-7b:q4_k_m; repeat for each role.",
    ),
]


def plan(
    reference: Reference = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset with the questions.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Pipeline that answers; see `mathrag pipeline list`.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Corpus to search.")] = None,
    limit: QuestionLimit = None,
    repeats: Repeats = 1,
    prompt: PromptOption = None,
    settings: Set = None,
    model: Model = None,
    models: Models = None,
    context: Annotated[int, typer.Option(help="With --models: context length of a slot, in tokens.")] = 2048,
    parallel: Annotated[
        int, typer.Option(help="With --models: maximum number of calls that a model answers in parallel.")
    ] = 8,
    kv: Annotated[str, typer.Option(metavar="f16|q8_0", help="With --models: type of the KV cache.")] = "f16",
    calls: Annotated[int, typer.Option(help="With --models: number of calls to each model.")] = 1000,
    budget: Annotated[
        list[int] | None,
        typer.Option(
            metavar="MIB", help="Memory of a GPU to plan for, instead of the configured devices; repeat for each GPU."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate model loads, time and memory of a job, or of models and GPUs that you do not have yet."""
    with report_errors(as_json=as_json), Client() as client:
        if (dataset is None) != (pipeline is None):
            raise Failed(
                "usage", "a plan needs both --dataset and --pipeline", hint="give both, or name a submitted JOB"
            )
        hypothetical_models = []
        for text in models or []:
            role, name = split_pair(text, "--models")
            preset, _, quantisation = name.partition(":")
            hypothetical = {"role": role, "preset": preset, "context": context, "parallel": parallel, "kv": kv}
            quantised = {"quantisation": quantisation} if quantisation else {}
            hypothetical_models.append({**hypothetical, "calls": calls, **quantised})
        if sum((reference is not None, dataset is not None, bool(hypothetical_models))) != 1:
            message = "a plan is made for exactly one of JOB, --dataset with --pipeline, or --models"
            raise Failed("usage", message, hint="mathrag plan --help explains them")
        if reference is not None:
            found = client.send(jobs.plan(reference))
        else:
            params = parse_parameters([*(settings or []), *parse_prompts(prompt)])
            job = {
                "name": "plan", "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "repeats": repeats,
                "params": params, "models": split_pairs(model, "--model"),
                **({} if limit is None else {"limit": limit}),
            }  # fmt: skip
            devices = [{"id": f"gpu:{number}", "budget_mib": mib} for number, mib in enumerate(budget or [])]
            planned = {"job": job} if dataset is not None else {"models": hypothetical_models}
            found = client.send(texts.plan({**planned, "devices": devices}))
        print_json(found) if as_json else print_plan(found)
        if found["chosen"] is None and found["others"]:
            raise typer.Exit(Exit.FINDING)


def print_plan(found: Any) -> None:
    """Print the planned loads in order, and why the other options are worse."""
    typer.echo(found["why"])
    residents = {device: names for device, names in found["resident"].items() if names}
    for device, names in residents.items():
        typer.echo(f"  {device} holds {', '.join(names)} now")
    if found["chosen"] is not None:
        residencies = found["chosen"]["residencies"]
        print_table(HEAD, [_make_residency_row(number, residency) for number, residency in enumerate(residencies, 1)])
        for basis in sorted({_describe_basis(each) for residency in residencies for each in residency["models"]}):
            typer.echo(f"  {basis}")
    if found["others"]:
        typer.echo("Other options:")
        print_table(OTHERS, [
            (each["name"], each["loads"], each["flips"], f"{each['seconds']:.1f}", each["refused"])
            for each in found["others"]
        ])  # fmt: skip


def _make_residency_row(number: int, residency: Any) -> tuple[object, ...]:
    models = [f"{each['name']} x{each['parallel']}" for each in residency["models"]]
    models += ["retrieval"] if residency["retrieval_mib"] else []
    load = "resident" if residency["resident"] else f"{residency['load_s']:.1f}"
    times = (load, f"{residency['service_s']:.1f}")
    return number, residency["device"], " + ".join(models), residency["predicted_mib"], residency["budget_mib"], *times


def _describe_basis(model: Any) -> str:
    """Return the basis of a model's memory and times, with the source of each."""
    load, call = model["load_s"], model["call_s"]
    return (
        f"{model['name']}: memory {model['basis']}; a load {load['basis']} ({load['source']});"
        f" a call {call['basis']} ({call['source']})"
    )
