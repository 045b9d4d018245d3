"""`mathrag rules`: mine, look at, evaluate and delete rule banks."""

import time
from itertools import islice
from typing import Annotated, Any

import typer

from mathrag.cli import progress, rule_files, rules_evaluate
from mathrag.cli.command_groups import Mutation, PlainCommand
from mathrag.cli.confirm import Yes, confirm
from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, facts, print_json, table
from mathrag.cli.rule_lines import line
from mathrag.client import rules as banks
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE, Json
from mathrag.client.rules import RuleBank
from shared.contracts.mining import Amie, TemporalSimple, TLogic

MINERS = {str(miner.__struct_config__.tag): miner for miner in (Amie, TLogic, TemporalSimple)}
SEALED_S = 0.2
"""Between two looks whether a bank is sealed."""
rules = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the bank.")]


@rules.command(cls=Mutation)
def mine(
    name: Annotated[str, typer.Option(help="What you call the bank.")],
    graph: Annotated[str, typer.Option(help="Graph whose rules are mined.")],
    miner: Annotated[str, typer.Option(help=f"One of {', '.join(MINERS)}.")] = "amie",
    min_support: Annotated[
        int | None,
        typer.Option(help="amie, temporal-simple: positive examples of a rule. [default: 2 for amie, else 1]"),
    ] = None,
    min_head_coverage: Annotated[
        float | None, typer.Option(help="amie: share of the head's facts that a rule explains. [default: 0.01]")
    ] = None,
    min_pca_confidence: Annotated[float | None, typer.Option(help="amie. [default: 0.1]")] = None,
    max_atoms: Annotated[int | None, typer.Option(help="amie: most atoms, the head counted. [default: 3]")] = None,
    min_head_facts: Annotated[
        int | None, typer.Option(help="Facts that a head's relation must have. [default: 100 for amie, else 1]")
    ] = None,
    constants: Annotated[
        bool | None, typer.Option("--constants", help="amie: atoms may name an entity.", show_default=False)
    ] = None,
    walks: Annotated[int | None, typer.Option(help="tlogic: walks of a relation and length. [default: 200]")] = None,
    max_length: Annotated[int | None, typer.Option(help="tlogic: most atoms of a body. [default: 3]")] = None,
    transition: Annotated[
        str | None, typer.Option(help="tlogic: exponential or uniform. [default: exponential]")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="tlogic: bodies that confidence is estimated from. [default: 500]")
    ] = None,
    exact: Annotated[
        bool | None, typer.Option("--exact", help="tlogic: count all bodies instead.", show_default=False)
    ] = None,
    min_confidence: Annotated[float | None, typer.Option(help="tlogic. [default: 0]")] = None,
    seed: Annotated[int | None, typer.Option(help="tlogic: of walks and samples. [default: 0]")] = None,
    window: Annotated[
        int | None, typer.Option(help="temporal-simple: steps within which a body counts. [default: 50]")
    ] = None,
    min_entities: Annotated[
        int | None, typer.Option(help="temporal-simple: entities in which a rule with constants meets. [default: 3]")
    ] = None,
    unseen_negatives: Annotated[
        int | None, typer.Option(help="temporal-simple: wrong examples added at each distance. [default: 30]")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until the bank can be used.")] = False,
    as_json: AsJson = False,
) -> None:
    """Mine the rules of a graph into a bank; it goes on whether or not anyone watches."""
    given = {
        "min_support": min_support, "min_head_coverage": min_head_coverage, "min_pca_confidence": min_pca_confidence,
        "max_atoms": max_atoms, "min_head_facts": min_head_facts, "constants": constants, "walks": walks,
        "max_length": max_length, "transition": transition, "samples": samples, "exact": exact,
        "min_confidence": min_confidence, "seed": seed, "window": window, "min_entities": min_entities,
        "unseen_negatives": unseen_negatives,
    }  # fmt: skip
    with reported(as_json=as_json), Client() as client:
        limits = _limits(miner, {limit: value for limit, value in given.items() if value is not None})
        started = client.send(banks.mine(name, graph, {"miner": miner, **limits}))
        if not as_json:
            _print_started(started, wait)
        if wait:
            _print(_followed(client, started, as_json), as_json)
        elif as_json:
            print_json(started)


def _limits(miner: str, given: Json) -> Json:
    """`given` itself.

    Raises:
        Failed: there is no such miner, or it has no such limit.
    """
    if miner not in MINERS:
        raise Failed("usage", f"--miner {miner}: no such miner", hint=f"one of {', '.join(MINERS)}")
    known = MINERS[miner].__struct_fields__
    for limit in given:
        if limit not in known:
            hint = f"it has {', '.join(map(_option, known))}"
            raise Failed("usage", f"{_option(limit)}: the miner {miner} has no such limit", hint=hint)
    return given


def _option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _followed(client: Client, started: RuleBank, as_json: bool) -> RuleBank:
    """The bank once it can be used, or never will be."""
    bank: RuleBank = started
    if bank["state"] == "mining" and bank["job"] is not None:
        progress.watch(client, bank["job"], progress.Silent() if as_json else progress.view())
    while bank["state"] == "mining":
        bank = client.send(banks.get(bank["name"]))
        time.sleep(SEALED_S if bank["state"] == "mining" else 0)
    return bank


@rules.command("list")
def list_banks(
    limit: Annotated[int, typer.Option(help="How many, newest first.")] = 50, as_json: AsJson = False
) -> None:
    """Rule banks, newest first."""
    with reported(as_json=as_json), Client() as client:
        found = list(islice(client.all(banks.listed(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            table(("NAME", "GRAPH", "MINER", "STATE", "RULES"), map(_row, found))
        else:
            typer.echo("No rule banks yet: mathrag rules mine --help")


@rules.command()
def show(
    name: Name,
    head: Annotated[str | None, typer.Option(help="Only rules that predict this relation.")] = None,
    min_confidence: Annotated[float, typer.Option(help="Least PCA confidence, where there is one.")] = 0.0,
    limit: Annotated[int, typer.Option(help="How many rules.")] = 10,
    as_json: AsJson = False,
) -> None:
    """One bank, and its first rules."""
    with reported(as_json=as_json), Client() as client:
        bank = client.send(banks.get(name))
        asked = banks.rules(name, min(limit, MOST_OF_A_PAGE), head=head, min_confidence=str(min_confidence))
        found = list(islice(client.all(asked), limit))
        if as_json:
            print_json({**bank, "first": found})
            return
        _print_bank(bank)
        if found:
            typer.echo()
            table(("CONFIDENCE", "SUPPORT", "RULE"), [(*_figures(rule), line(rule)) for rule in found])


@rules.command(cls=Mutation)
def delete(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a bank with its rules; not while it is mined or a live job follows it."""
    with reported(as_json=as_json), Client() as client:
        if not (yes or client.shows):
            confirm(f"Delete rule bank {name} for good?", as_json=as_json)
        gone = client.send(banks.delete(name))
        if as_json:
            print_json(gone)
        else:
            typer.echo(f"Deleted rule bank {name} with its {gone['rules']} rules.")


rules.command("import", cls=Mutation)(rule_files.import_bank)
rules.command("export")(rule_files.export)
rules.command("evaluate", cls=PlainCommand)(rules_evaluate.evaluate)


def _print(bank: RuleBank, as_json: bool) -> None:
    """The bank that was waited for; ends with a finding where it has no rules."""
    if as_json:
        print_json(bank)
    else:
        _print_bank(bank)
        if bank["state"] == "ready" and not bank["rules"]:
            typer.echo("  no rule is within the limits; lower them: mathrag rules mine --help")
    if bank["state"] != "ready":
        raise typer.Exit(Exit.FINDING)


def _print_started(started: banks.MinedBank, wait: bool) -> None:
    """What mining takes; where nobody waits also how to watch it, or the bank that is there already."""
    if started["state"] == "mining":
        memory = f"takes at most {started['memory_mib']} MiB"
        typer.echo(f"rule bank {started['name']} is mined, {started['relations']} relations; {memory}")
        if not wait:
            typer.echo(f"  next: mathrag job watch {(started['job'] or '')[:8]}")
    elif not wait:
        _print_bank(started)


def _print_bank(bank: RuleBank) -> None:
    typer.echo(f"rule bank {bank['name']} is {bank['state']}")
    limits = ", ".join(f"{limit} {_shown(value)}" for limit, value in bank["limits"].items() if limit != "miner")
    facts(
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


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _figures(rule: Any) -> tuple[str, object]:
    pca = rule.get("pca_confidence")
    return f"{rule['confidence'] if pca is None else pca:.3f}", rule["support"]


def _row(bank: RuleBank) -> tuple[object, ...]:
    return bank["name"], bank["graph"], bank["miner"], bank["state"], bank["rules"]
