"""Rule banks."""

from os import PathLike
from pathlib import Path
from typing import Literal

from mathrag.client import rules as banks  # the group has an operation `rules`
from mathrag.client.answers import MinedBank, Rule, RuleBank, RuleBankDetails
from mathrag.client.operations import C, Download, Group, Listing, Operation
from mathrag.client.request import Json, Request
from mathrag.client.uploads import File


def import_bank(
    name: str,
    file: str | PathLike[str],
    *,
    format: Literal["auto", "amie", "json"] = "auto",  # noqa: A002 - what the API calls it
    graph: str | None = None,
) -> Request[Json]:
    """Store the rules of AMIE or an exported bank; `graph` must have all relations that they name."""
    return banks.import_bank(name, File(Path(file)), graph, format)


class Rules(Group[C]):
    """Rule banks."""

    mine = Operation(banks.mine, MinedBank)
    list = Listing(banks.list_rule_banks, RuleBank)
    get = Operation(banks.get, RuleBankDetails)
    delete = Operation(banks.delete, RuleBank)
    rules = Listing(banks.list_rules, Rule)
    import_bank = Operation(import_bank, RuleBank)
    export = Download(banks.export_bank)
