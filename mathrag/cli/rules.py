"""`mathrag rules`: rule banks, mined and imported."""

import re
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli import progress
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, Exit, Yes, confirm, print_facts, print_json, print_table, report_errors
from mathrag.client import rules as banks
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE, Json
from mathrag.client.rules import RuleBank
from shared.calls import Amie, TLogic
from shared.messages import format_count
from shared.pages.lines import format_atom, format_body

# Format a rule on one line: `treats(X, Y) <= prescribed(X, Z), contains(Z, Y)`.


def format_rule(rule: Any) -> str:
    """Return the rule as text, head first; variables are X, Y, Z and then V3, V4."""
    return f"{format_atom(rule['head'])} <= {format_body(rule)}"


# `mathrag rules`: mine, import, export, inspect and delete rule banks.

MINERS = {str(miner.__struct_config__.tag): miner for miner in (Amie, TLogic)}
SEALED_S = 0.2
"""Seconds between two polls of a bank whose job has ended and which is not sealed yet."""
CHUNK = 1 << 20
_UPLOAD = re.compile(r"^upload\b")
rules = typer.Typer()


class ImportFormat(StrEnum):
    """What a file must be."""

    AUTO = "auto"
    AMIE = "amie"
    JSON = "json"


class ExportFormat(StrEnum):
    """How a bank is written."""

    AMIE = "amie"
    JSON = "json"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the rule bank.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new rule bank.")]
From = Annotated[Path, typer.Option("--from", help="Rules as AMIE prints them, or an exported bank; may be gzipped.")]
ImportOption = Annotated[ImportFormat, typer.Option("--format", help="Format of the file; auto takes either.")]
Graph = Annotated[str | None, typer.Option(help="Refuse rules with relations that this graph lacks.")]
ExportOption = Annotated[
    ExportFormat, typer.Option("--format", help="json: everything, to import elsewhere; amie: AMIE's columns.")
]
Out = Annotated[Path | None, typer.Option(help="File to write (default: standard output).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


@rules.command(cls=Mutation)
def mine(
    name: Annotated[str, typer.Option(help="Name of the new rule bank.")],
    graph: Annotated[str, typer.Option(help="Graph to mine.")],
    miner: Annotated[str, typer.Option(help=f"Miner: {', '.join(MINERS)}.")] = "amie",
    min_support: Annotated[
        int | None, typer.Option(help="amie: least positive examples of a rule (default: 2).")
    ] = None,
    min_head_coverage: Annotated[
        float | None, typer.Option(help="amie: least share of the head's facts that a rule predicts (default: 0.01).")
    ] = None,
    min_pca_confidence: Annotated[float | None, typer.Option(help="amie: least PCA confidence (default: 0.1).")] = None,
    max_atoms: Annotated[
        int | None, typer.Option(help="amie: most atoms of a rule, head included (default: 3).")
    ] = None,
    min_head_facts: Annotated[
        int | None, typer.Option(help="Least number of facts of a head's relation (default: 100, tlogic: 1).")
    ] = None,
    constants: Annotated[
        bool | None, typer.Option("--constants", help="amie: allow entities in atoms.", show_default=False)
    ] = None,
    walks: Annotated[
        int | None, typer.Option(help="tlogic: random walks per relation and length (default: 200).")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="tlogic: most atoms of a rule's body (default: 3).")] = None,
    transition: Annotated[
        str | None, typer.Option(help="tlogic: how walks step, exponential or uniform (default: exponential).")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="tlogic: bodies sampled to estimate a confidence (default: 500).")
    ] = None,
    exact: Annotated[
        bool | None, typer.Option("--exact", help="tlogic: count all bodies instead of sampling.", show_default=False)
    ] = None,
    min_confidence: Annotated[float | None, typer.Option(help="tlogic: least confidence (default: 0).")] = None,
    seed: Annotated[int | None, typer.Option(help="tlogic: seed for walks and samples (default: 0).")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the mining until the bank is ready.")] = False,
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
        limits = _check_limits(miner, {limit: value for limit, value in options.items() if value is not None})
        started = client.send(banks.mine(name, graph, {"miner": miner, **limits}))
        if not as_json:
            _print_started(started, wait)
        if wait:
            _print(_follow(client, started, as_json), as_json)
        elif as_json:
            print_json(started)


def _check_limits(miner: str, given: Json) -> Json:
    """Check the limits of a miner, and return them.

    Raises:
        Failed: there is no such miner, or it has no such limit.
    """
    if miner not in MINERS:
        raise Failed("usage", f"--miner {miner}: there is no such miner", hint=f"choose one of {', '.join(MINERS)}")
    known = MINERS[miner].__struct_fields__
    for limit in given:
        if limit not in known:
            hint = f"its limits are {', '.join(map(_format_option, known))}"
            raise Failed("usage", f"{_format_option(limit)}: the miner {miner} has no such limit", hint=hint)
    return given


def _format_option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _follow(client: Client, started: RuleBank, as_json: bool) -> RuleBank:
    """Follow the mining until the bank is ready or has failed, and return the bank."""
    bank: RuleBank = started
    if bank["state"] == "mining" and bank["job"] is not None:
        progress.watch(client, bank["job"], progress.Silent() if as_json else progress.choose_view())
    while bank["state"] == "mining":
        bank = client.send(banks.get(bank["name"]))
        time.sleep(SEALED_S if bank["state"] == "mining" else 0)
    return bank


@rules.command("list")
def list_banks(
    limit: Annotated[int, typer.Option(help="Number of banks to list.")] = 50, as_json: AsJson = False
) -> None:
    """List rule banks, newest first."""
    with report_errors(as_json=as_json), Client() as client:
        found = list(islice(client.all(banks.list_rule_banks(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            print_table(("NAME", "GRAPH", "MINER", "STATE", "RULES"), map(_make_row, found))
        else:
            typer.echo("No rule banks yet: mathrag rules mine --help")


@rules.command()
def show(
    name: Name,
    head: Annotated[str | None, typer.Option(help="Only rules that predict this relation.")] = None,
    min_confidence: Annotated[float, typer.Option(help="Least PCA confidence, for rules that have one.")] = 0.0,
    limit: Annotated[int, typer.Option(help="Number of rules to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a rule bank and its first rules."""
    with report_errors(as_json=as_json), Client() as client:
        bank = client.send(banks.get(name))
        request = banks.rules(name, min(limit, MOST_OF_A_PAGE), head=head, min_confidence=str(min_confidence))
        found = list(islice(client.all(request), limit))
        if as_json:
            print_json({**bank, "first": found})
            return
        _print_bank(bank)
        if found:
            typer.echo()
            print_table(
                ("CONFIDENCE", "SUPPORT", "RULE"), [(*_format_figures(rule), format_rule(rule)) for rule in found]
            )


@rules.command(cls=Mutation)
def delete(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a rule bank, unless it is being mined or a running job uses it."""
    with report_errors(as_json=as_json), Client() as client:
        if not (yes or client.shows):
            confirm(f"Delete rule bank {name} for good?", as_json=as_json)
        deletion = client.send(banks.delete(name))
        if as_json:
            print_json(deletion)
        else:
            typer.echo(f"Deleted rule bank {name} with its {format_count(deletion['rules'], 'rule')}.")


@rules.command("import", cls=Mutation)
def import_bank(
    name: NewName,
    source: From,
    format: ImportOption = ImportFormat.AUTO,  # noqa: A002
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Import the rules of a file as a rule bank. Importing the same again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        try:
            bank = client.send(banks.import_bank(name, _read_chunks(source), graph, format.value))
        except Failed as failed:  # the server calls the file its upload
            message = _UPLOAD.sub(lambda _: str(source), failed.message)
            raise Failed(failed.kind, message, failed.hint) from failed
        if as_json:
            print_json(bank)
            return
        typer.echo(f"rule bank {name}: {format_count(bank['rules'], 'rule')} of {bank['miner']}")
        typer.echo(f"  next: mathrag rules show {name}")


def _read_chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


@rules.command()
def export(
    name: Name,
    format: ExportOption = ExportFormat.JSON,  # noqa: A002
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a rule bank to a file or to standard output."""
    with report_errors(as_json=as_json), Client() as client:
        request = banks.export_bank(name, format.value)
        if out is None:
            sys.stdout.buffer.writelines(client.stream(request))
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            raise Failed("conflict", f"{out} already exists", hint="choose another file, or --force")
        client.save(request, out)
        if client.shows:
            return
        if as_json:
            print_json({"bank": name, "file": str(out), "format": format.value})
        else:
            typer.echo(f"rule bank {name} is in {out}")


def _print(bank: RuleBank, as_json: bool) -> None:
    """Print the mined bank; exit with a finding unless it is ready."""
    if as_json:
        print_json(bank)
    else:
        _print_bank(bank)
        if bank["state"] == "ready" and not bank["rules"]:
            typer.echo("  no rule is within the limits; lower them: mathrag rules mine --help")
    if bank["state"] != "ready":
        raise typer.Exit(Exit.FINDING)


def _print_started(started: banks.MinedBank, wait: bool) -> None:
    """Print the memory that mining needs; without --wait also how to follow it, or the existing bank."""
    if started["state"] == "mining":
        memory = f"needs at most {started['memory_mib']} MiB"
        typer.echo(f"mining rule bank {started['name']} from {started['relations']} relations; {memory}")
        if not wait:
            typer.echo(f"  next: mathrag job watch {(started['job'] or '')[:8]}")
    elif not wait:
        _print_bank(started)


def _print_bank(bank: RuleBank) -> None:
    typer.echo(f"rule bank {bank['name']} is {bank['state']}")
    limits = ", ".join(f"{limit} {_format_limit(value)}" for limit, value in bank["limits"].items() if limit != "miner")
    print_facts(
        [
            ("reason", bank["reason"]),
            ("graph", bank["graph"]),
            ("miner", bank["miner"]),
            ("limits", limits),
            ("relations", bank["relations"]),
            ("rules", bank["rules"]),
            ("hash", bank["hash"]),
            ("job", bank["job"]),
        ]
    )


def _format_limit(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _format_figures(rule: Any) -> tuple[str, object]:
    pca = rule.get("pca_confidence")
    return f"{rule['confidence'] if pca is None else pca:.3f}", rule["support"]


def _make_row(bank: RuleBank) -> tuple[object, ...]:
    return bank["name"], bank["graph"], bank["miner"], bank["state"], bank["rules"]
