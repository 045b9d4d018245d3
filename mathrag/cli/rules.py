"""`mathrag rules`: mine rules from graphs; import, show and export rule banks."""

import re
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mathrag.cli import progress
from mathrag.cli.api import list_and_print, save
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, Exit, Force, Yes, confirm, print_facts, print_json, print_table, report_errors
from mathrag.client import rules as banks
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json
from mathrag.client.uploads import File
from mathrag.messages import format_count
from mathrag.report_lines import format_atom, format_body

MINERS = {
    "amie": (
        "min_support", "min_head_coverage", "min_pca_confidence", "max_atoms", "min_head_facts", "constants",
    ),
    "tlogic": ("walks", "max_length", "transition", "samples", "exact", "min_confidence", "min_head_facts", "seed"),
}  # fmt: skip
"""Options of each miner; the server checks their values."""
SEALED_S = 0.2
"""Seconds between two polls of a bank whose job has ended but which is not ready yet."""
_UPLOAD = re.compile(r"^upload\b")
rules = typer.Typer()


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the rule bank.")]


@rules.command(cls=Mutation)
def mine(
    name: Annotated[str, typer.Option(help="Name of the new rule bank.")],
    graph: Annotated[str, typer.Option(help="Graph to mine.")],
    miner: Annotated[
        str, typer.Option(metavar="|".join(MINERS), help="Algorithm; tlogic needs facts with times.")
    ] = "amie",
    min_support: Annotated[
        int | None, typer.Option(help="amie: minimum number of positive examples of a rule (default: 2).")
    ] = None,
    min_head_coverage: Annotated[
        float | None,
        typer.Option(help="amie: minimum share of the head's facts that a rule predicts (default: 0.01)."),
    ] = None,
    min_pca_confidence: Annotated[
        float | None, typer.Option(help="amie: minimum PCA confidence (default: 0.1).")
    ] = None,
    max_atoms: Annotated[
        int | None, typer.Option(help="amie: maximum number of atoms in a rule, including the head (default: 3).")
    ] = None,
    min_head_facts: Annotated[
        int | None, typer.Option(help="Mine only heads whose relation has at least N facts (default: 100, tlogic: 1).")
    ] = None,
    constants: Annotated[
        bool | None, typer.Option("--constants", help="amie: allow entities in atoms.", show_default=False)
    ] = None,
    walks: Annotated[
        int | None, typer.Option(help="tlogic: number of random walks per relation and length (default: 200).")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="tlogic: maximum number of atoms in a rule's body (default: 3).")
    ] = None,
    transition: Annotated[
        str | None,
        typer.Option(
            metavar="exponential|uniform", help="tlogic: distribution of a walk's steps (default: exponential)."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="tlogic: number of bodies sampled to estimate a confidence (default: 500).")
    ] = None,
    exact: Annotated[
        bool | None, typer.Option("--exact", help="tlogic: count all bodies instead of sampling.", show_default=False)
    ] = None,
    min_confidence: Annotated[float | None, typer.Option(help="tlogic: minimum confidence (default: 0).")] = None,
    seed: Annotated[int | None, typer.Option(help="tlogic: random seed (default: 0).")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until mining has ended, and show its progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Mine the rules of a graph into a rule bank, in the background."""
    options = {
        "min_support": min_support, "min_head_coverage": min_head_coverage, "min_pca_confidence": min_pca_confidence,
        "max_atoms": max_atoms, "min_head_facts": min_head_facts, "constants": constants, "walks": walks,
        "max_length": max_length, "transition": transition, "samples": samples, "exact": exact,
        "min_confidence": min_confidence, "seed": seed,
    }  # fmt: skip
    with report_errors(as_json=as_json), Client() as client:
        limits = {limit: value for limit, value in options.items() if value is not None}
        _check_limits(miner, limits)
        checked: Any = miner
        started = client.send(banks.mine(name, graph, checked, **limits))
        if not as_json:
            _print_started(started, wait)
        if wait:
            _wait_until_mined(client, started, as_json)
        elif as_json:
            print_json(started)


def _check_limits(miner: str, limits: Json) -> None:
    """Check that this miner exists, and that it has these options.

    Raises:
        Failed: the miner does not exist, or it lacks an option.
    """
    if miner not in MINERS:
        raise Failed("usage", f"--miner {miner}: unknown miner", hint=f"choose one of {', '.join(MINERS)}")
    known = MINERS[miner]
    for limit in limits:
        if limit not in known:
            hint = f"the options of {miner} are {', '.join(map(_format_option, known))}"
            raise Failed("usage", f"{_format_option(limit)} is not an option of the miner {miner}", hint=hint)


def _format_option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _print_started(started: Json, wait: bool) -> None:
    """Print the memory that mining needs; without --wait, also print the next command or the existing bank."""
    if started["state"] == "mining":
        memory = f"needs at most {started['memory_mib']} MiB"
        typer.echo(f"mining rule bank {started['name']} from {started['relations']} relations; {memory}")
        if not wait:
            typer.echo(f"  next: mathrag job watch {(started['job'] or '')[:8]}")
    elif not wait:
        _print_bank(started)


def _wait_until_mined(client: Client, bank: Json, as_json: bool) -> None:
    """Poll until the bank is ready or has failed, and print it; exit with a finding unless it is ready."""
    if bank["state"] == "mining" and bank["job"] is not None:
        progress.watch(client, bank["job"], progress.Silent() if as_json else progress.choose_view())
    while bank["state"] == "mining":
        bank = client.send(banks.get(bank["name"]))
        time.sleep(SEALED_S if bank["state"] == "mining" else 0)
    if as_json:
        print_json(bank)
    else:
        _print_bank(bank)
        if bank["state"] == "ready" and not bank["rules"]:
            typer.echo("  no rule reaches the limits; lower them (see mathrag rules mine --help)")
    if bank["state"] != "ready":
        raise typer.Exit(Exit.FINDING)


@rules.command("list")
def list_banks(
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 50, as_json: AsJson = False
) -> None:
    """List rule banks, newest first."""
    fields = ("name", "graph", "miner", "state", "rules")
    list_and_print(
        banks.list_rule_banks(), [field.upper() for field in fields], lambda bank: [bank[field] for field in fields],
        as_json, limit=limit, nothing="No rule banks yet: mathrag rules mine --help",
    )  # fmt: skip


@rules.command()
def show(
    name: Name,
    head: Annotated[str | None, typer.Option(metavar="RELATION", help="Only rules that predict this relation.")] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Minimum confidence to list (PCA confidence for rules that have one).")
    ] = 0.0,
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a rule bank and its first rules."""
    with report_errors(as_json=as_json), Client() as client:
        bank = client.send(banks.get(name))
        found = client.first(banks.list_rules(name, head=head, min_confidence=min_confidence), limit)
        if as_json:
            print_json({**bank, "first": found})
            return
        _print_bank(bank)
        if found:
            typer.echo()
            rows = []
            for rule in found:
                pca = rule.get("pca_confidence")
                confidence = f"{rule['confidence'] if pca is None else pca:.3f}"
                # On one line, head first: `treats(X, Y) <= prescribed(X, Z), contains(Z, Y)`.
                rows.append((confidence, rule["support"], f"{format_atom(rule['head'])} <= {format_body(rule)}"))
            print_table(("CONFIDENCE", "SUPPORT", "RULE"), rows)


@rules.command(cls=Mutation)
def delete(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a rule bank, unless it is being mined or a running job uses it."""
    with report_errors(as_json=as_json), Client() as client:
        if not (yes or client.shows):
            confirm(f"Permanently delete rule bank {name}?", as_json=as_json)
        deletion = client.send(banks.delete(name))
        if as_json:
            print_json(deletion)
        else:
            typer.echo(f"Deleted rule bank {name} with its {format_count(deletion['rules'], 'rule')}.")


@rules.command("import", cls=Mutation)
def import_bank(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new rule bank.")],
    source: Annotated[
        Path, typer.Option("--from", help="Rules in AMIE's output format, or an exported bank; may be gzipped.")
    ],
    format: Annotated[  # noqa: A002
        Literal["auto", "amie", "json"], typer.Option("--format", help="Format of the file; auto detects it.")
    ] = "auto",
    graph: Annotated[
        str | None, typer.Option(help="Reject the import if a rule has a relation that this graph lacks.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import rules from a file as a rule bank. Importing the same file again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        try:
            bank = client.send(banks.import_bank(name, File(source), graph, format))
        except Failed as failed:  # the server does not know the file's name
            message = _UPLOAD.sub(lambda _: str(source), failed.message)
            raise Failed(failed.kind, message, failed.hint) from failed
        if as_json:
            print_json(bank)
            return
        typer.echo(f"rule bank {name}: {format_count(bank['rules'], 'rule')} of {bank['miner']}")
        typer.echo(f"  next: mathrag rules show {name}")


@rules.command()
def export(
    name: Name,
    format: Annotated[  # noqa: A002
        Literal["amie", "json"],
        typer.Option(
            "--format", help="Format of the file: json has everything and can be imported; amie has AMIE's columns."
        ),
    ] = "json",
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a rule bank to a file or to standard output."""
    with report_errors(as_json=as_json), Client() as client:
        if not save(client, banks.export_bank(name, format=format), out, force=force):
            return
        if as_json:
            print_json({"bank": name, "file": str(out), "format": format})
        else:
            typer.echo(f"wrote rule bank {name} to {out}")


def _print_bank(bank: Json) -> None:
    typer.echo(f"rule bank {bank['name']} is {bank['state']}")
    words = {"True": "yes", "False": "no"}
    limits = [f"{limit} {words.get(str(value), value)}" for limit, value in bank["limits"].items() if limit != "miner"]
    print_facts((name, bank[name]) for name in ("reason", "graph", "miner"))
    print_facts([("limits", ", ".join(limits))])
    print_facts((name, bank[name]) for name in ("relations", "rules", "hash", "job"))
