"""`mathrag gpu`: what the devices hold and why; empty one, use it again."""

from typing import Annotated, Any

import typer

from mathrag.cli.command_groups import Mutation
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json
from mathrag.client import devices
from mathrag.client.client import Client
from mathrag.client.devices import Device
from mathrag.client.errors import Failed

SHOWN = 5
"""Flips; --json has more."""
gpu = typer.Typer()

DeviceName = Annotated[str | None, typer.Argument(help="Such as cpu:0; may be left out where there is only one.")]


@gpu.command()
def status(device: DeviceName = None, as_json: AsJson = False) -> None:
    """Models, memory, calls in flight, and the last flips with their causes."""
    with reported(as_json=as_json), Client() as client:
        found = [client.send(devices.get(device))] if device else client.send(devices.listed())
        if as_json:
            print_json(found)
            return
        for each in found:
            print_device(each)


@gpu.command(cls=Mutation)
def drain(
    device: DeviceName = None,
    reason: Annotated[str | None, typer.Option(help="Shown to whoever wonders.")] = None,
    as_json: AsJson = False,
) -> None:
    """Unload everything and load nothing until it is released; jobs wait, and none fails."""
    with reported(as_json=as_json), Client() as client:
        name = device or _only(client)
        _changed(client.send(devices.drain(name, reason)), "is drained", as_json)


@gpu.command(cls=Mutation)
def release(device: DeviceName = None, as_json: AsJson = False) -> None:
    """Let the device be used again; what waits goes on."""
    with reported(as_json=as_json), Client() as client:
        name = device or _only(client)
        _changed(client.send(devices.release(name)), "is released", as_json)


def _only(client: Client) -> str:
    if client.shows:
        raise Failed("usage", "DEVICE is needed here: finding it would send a request", hint="mathrag gpu")
    names = [found["device"] for found in client.send(devices.listed())]
    if len(names) != 1:
        raise Failed("usage", f"which device? There are {', '.join(names)}", hint=f"mathrag gpu drain {names[0]}")
    return str(names[0])


def _changed(found: Device, said: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(f"device {found['device']} {said}")
        typer.echo("  next: mathrag gpu")


def print_device(found: Device) -> None:
    """One paragraph."""
    memory, guard, drain = found["memory"], found["guard"], found["drain"]
    typer.echo(f"{found['device']}: {found['state']}{', drained' if drain else ''}")
    measured = f", {memory['measured']} measured" if memory["measured"] is not None else ""
    facts(
        [
            ("drained", drain and f"since {drain['since'][:19]}: {drain['reason'] or 'no reason given'}"),
            ("models", ", ".join(model["name"] for model in found["models"]) or "none"),
            ("memory MiB", f"{memory['declared']} declared{measured}, of {memory['budget'] or 'an unknown budget'}"),
            ("remark", memory.get("remark")),
            ("guard", _guard(guard)),
        ]
    )
    for flip in found["flips"][:SHOWN]:
        typer.echo(f"  {'flip':<16}{_flip(flip)}")
    if drain:
        typer.echo(f"  next: mathrag gpu release {found['device']}")


def _guard(guard: Any) -> str:
    if not guard["reachable"]:
        return f"does not answer: {guard['detail']}"
    return f"{guard['state']}, epoch {guard['epoch']}, {guard['in_flight']} calls in flight"


def _flip(flip: Any) -> str:
    models = ", ".join(flip["models"]) or "nothing"
    took = f", loaded in {flip['load_s']} s" if flip["load_s"] is not None else ""
    said = f": {flip['reason']}" if flip["reason"] else ""
    when = f"epoch {flip['epoch']}, {flip['wanted_at'][:19]}"
    return f"{when}: {models}, because {flip['cause']}{took}, {flip['state']}{said}"
