"""`mathrag gpu`: inspect, drain, release and retry devices."""

from typing import Annotated

import typer

from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, print_facts, print_json, print_table, report_errors
from mathrag.client import service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json
from mathrag.messages import format_count

MAX_FLIPS = 5
"""Number of flips that are printed; --json has more."""
gpu = typer.Typer()

DeviceName = Annotated[str | None, typer.Argument(help="Device, such as cpu:0; you can omit it if there is only one.")]


@gpu.command()
def status(device: DeviceName = None, as_json: AsJson = False) -> None:
    """Show the models, memory, calls in flight, and latest flips (changes of models) of each device."""
    with report_errors(as_json=as_json), Client() as client:
        found = [client.send(service.device(device))] if device else client.send(service.list_devices())
        if as_json:
            print_json(found)
            return
        for each in found:
            print_device(each)


@gpu.command()
def shares(as_json: AsJson = False) -> None:
    """Show how API keys share the service: weight, project, unfinished samples, use in 24 hours, and storage."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.shares())
        if as_json:
            print_json(found)
            return
        columns = ("key", "weight", "project", "live_samples", "ended_samples")
        rows = [
            [*(each[column] for column in columns), f"{each['gpu_s']:.1f}", f"{each['storage_mib']:.1f}"]
            for each in found["keys"]
        ]
        print_table(("KEY", "WEIGHT", "PROJECT", "UNFINISHED", "ENDED 24H", "GPU S 24H", "STORED MIB"), rows)
        for limit in ("samples_per_key", "gpu_s_per_key", "storage_mib_per_key"):
            typer.echo(f"limits.{limit}: {found[limit] or 'none'}")


@gpu.command(cls=Mutation)
def drain(
    device: DeviceName = None,
    reason: Annotated[str | None, typer.Option(help="Reason shown by `mathrag gpu status`.")] = None,
    as_json: AsJson = False,
) -> None:
    """Unload a device's models and load none until you release it; jobs wait and do not fail."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.drain(device or _find_only_device(client), reason=reason))
        _print_change(found, "is drained", as_json)


@gpu.command(cls=Mutation)
def release(device: DeviceName = None, as_json: AsJson = False) -> None:
    """Let a drained device load models again; waiting jobs continue."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.release(device or _find_only_device(client)))
        _print_change(found, "is released", as_json)


@gpu.command(cls=Mutation)
def retry(device: DeviceName = None, as_json: AsJson = False) -> None:
    """Try to load models on a quarantined device now, instead of at its next scheduled attempt."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.retry(device or _find_only_device(client)))
        is_tried = found["state"] == "quarantined"
        _print_change(found, "is tried again" if is_tried else f"is {found['state']}, not quarantined", as_json)


def _find_only_device(client: Client) -> str:
    if client.shows:
        problem = "DEVICE is missing: --print-curl and --dry-run send no request to look it up"
        raise Failed("usage", problem, hint="name the DEVICE; mathrag gpu lists the devices")
    names = [found["device"] for found in client.send(service.list_devices())]
    if len(names) != 1:
        found = f"there are {len(names)}: {', '.join(names)}" if names else "no device is known"
        raise Failed("usage", f"DEVICE is missing, and {found}", hint="name a device that mathrag gpu lists")
    return str(names[0])


def _print_change(found: Json, message: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(f"device {found['device']} {message}")
        typer.echo("  next: mathrag gpu")


def print_device(found: Json) -> None:
    """Print the device's models, memory, guard and latest flips."""
    memory, guard, drain = found["memory"], found["guard"], found["drain"]
    typer.echo(f"{found['device']}: {found['state']}{', drained' if drain else ''}")
    measured = f", {memory['measured']} measured" if memory["measured"] is not None else ""
    if guard["reachable"]:
        calls = format_count(guard["in_flight"], "call")
        epoch = "" if guard["epoch"] is None else f", epoch {guard['epoch']}"
        guarded = f"{guard['state']}{epoch}, {calls} in flight"
    else:
        guarded = f"does not answer: {guard['detail']}"
    print_facts(
        [
            ("drained", drain and f"since {drain['since'][:19]}: {drain['reason'] or 'no reason given'}"),
            ("models", ", ".join(model["name"] for model in found["models"]) or "none"),
            ("memory MiB", f"{memory['declared']} declared{measured}, of {memory['budget'] or 'an unknown budget'}"),
            ("remark", memory.get("remark")),
            ("guard", guarded),
        ]
    )
    for flip in found["flips"][:MAX_FLIPS]:
        models = ", ".join(flip["models"]) or "nothing"
        took = f", loaded in {flip['load_s']} s" if flip["load_s"] is not None else ""
        reason = f": {flip['reason']}" if flip["reason"] else ""
        when = f"epoch {flip['epoch']}, {flip['wanted_at'][:19]}"
        print_facts([("flip", f"{when}: {models}, because {flip['cause']}{took}, {flip['state']}{reason}")])
    if drain:
        typer.echo(f"  next: mathrag gpu release {found['device']}")
    elif found["state"] == "quarantined":
        typer.echo(f"  next: mathrag gpu retry {found['device']}")
