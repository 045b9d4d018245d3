"""Rule banks."""

from os import PathLike
from pathlib import Path
from typing import Any, Literal

from mathrag.client import rules
from mathrag.client.answers import MinedBank, Rule, RuleBank, RuleBankDetails
from mathrag.client.operations import C, Download, Group, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request
from mathrag.client.uploads import File


def mine(name: str, graph: str, miner: Literal["amie", "tlogic"], **limits: object) -> Request[Any]:
    """Mine a bank by a job, whose id is `job` of the answer; repeating it returns the same bank.

    Args:
        name: name of the bank.
        graph: name of the graph to mine.
        miner: name of the mining method.
        limits: limits of the miner, such as `min_support=2`.
    """
    return rules.mine(name, graph, {"miner": miner, **limits})


def list_rule_banks() -> Request[Any]:
    """List all rule banks, newest first."""
    return rules.list_rule_banks(MOST_OF_A_PAGE)


def get(name: str) -> Request[Any]:
    """Fetch state, limits and hash of a bank, and the relations that its rules lead to."""
    return rules.get(name)


def delete(name: str) -> Request[Any]:
    """Delete a bank with its rules."""
    return rules.delete(name)


def rules_of(
    name: str,
    *,
    head: str | None = None,
    min_confidence: float | None = None,
    min_support: int | None = None,
    order: Literal["bank", "confidence"] = "bank",
) -> Request[Any]:
    """List the rules of a bank, filtered by head relation, least confidence and least support."""
    return rules.rules(
        name, MOST_OF_A_PAGE, head=head, min_confidence=min_confidence, min_support=min_support, order=order
    )


def import_bank(
    name: str,
    file: str | PathLike[str],
    *,
    format: Literal["auto", "amie", "json"] = "auto",  # noqa: A002 - what the API calls it
    graph: str | None = None,
) -> Request[Any]:
    """Store the rules of AMIE or an exported bank; `graph` must have all relations that they name."""
    return rules.import_bank(name, File(Path(file)), graph, format)


def export(name: str, *, format: Literal["json", "amie"] = "json") -> Request[Any]:  # noqa: A002
    """Download all rules of a bank as JSON lines or in AMIE's columns."""
    return rules.export_bank(name, format)


class Rules(Group[C]):
    """Rule banks."""

    mine = Operation(mine, MinedBank)
    list = Listing(list_rule_banks, RuleBank)
    get = Operation(get, RuleBankDetails)
    delete = Operation(delete, RuleBank)
    rules = Listing(rules_of, Rule)
    import_bank = Operation(import_bank, RuleBank)
    export = Download(export)
