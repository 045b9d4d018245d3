"""The inputs of `mathrag rules evaluate`: a rule bank, training facts, and held-out facts to predict."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mathrag.client.errors import Failed
from shared.contracts.rules import Miner, Rule
from shared.errors import TooLarge
from shared.ingest import facts, graph_paths
from shared.ingest.rules import reading
from shared.rules.trial import Trial, make_trial
from shared.storage.graphs import GraphFacts

MOST_FACTS = 1_000_000
"""Largest number of training facts and of held-out facts; the default limit of a server."""
TEMPORAL: tuple[Miner, ...] = ("tlogic", "temporal-simple")


class TemporalBank(NamedTuple):
    """Holds temporal rules and the miner that found them."""

    miner: Miner
    rules: Sequence[Rule]


def read_bank(path: Path) -> TemporalBank:
    """Read an exported rule bank.

    Raises:
        Failed: the file is not an exported bank, or its rules have no times.
        Invalid, TooLarge: as `reading.read` says.
    """
    with path.open("rb") as file:
        found = reading.read(file, str(path))
        if found.miner not in TEMPORAL:
            hint = f"rules of {' and '.join(TEMPORAL)} can be evaluated"
            raise Failed("invalid", f"{path}: rules of {found.miner} have no times, so they predict no facts", hint)
        if found.header is None:
            hint = "import it with mathrag rules import, then use mathrag rules export NAME --out FILE"
            raise Failed("invalid", f"{path} is not an exported rule bank", hint)
        return TemporalBank(found.miner, list(found.rules))


def read_trial(
    graph: Path, splits: Sequence[str], held_out: Path, held_out_splits: Sequence[str], limit: int | None
) -> Trial:
    """Read the training facts and the held-out facts.

    Raises:
        Failed: one has dates and the other numbers as times.
        Failed, Invalid, NotFound: as `read_facts` says.
    """
    train, held = read_facts(graph, splits), read_facts(held_out, held_out_splits)
    if train.time_unit != held.time_unit:
        message = (
            f"{held_out}: each fact has {facts.UNITS[held.time_unit]}, but {facts.UNITS[train.time_unit]} in {graph}"
        )
        raise Failed("invalid", message, "use the same kind of times in both")
    return make_trial(train.graph, held.graph, limit)


def read_facts(path: Path, splits: Sequence[str]) -> GraphFacts:
    """Read the facts of a file, or of these splits of a folder.

    Raises:
        Failed: they have no times, or there are too many.
        Invalid, NotFound: as `graph_paths.fact_lines` and `facts.read` say.
    """
    try:
        found = facts.read(graph_paths.fact_lines(path, splits), path.name, MOST_FACTS).upload
    except TooLarge as error:
        raise Failed("too_large", f"{path}: {error}", f"use a file of at most {MOST_FACTS} facts") from error
    if found.time_unit is None:
        hint = "temporal rules need a fourth column: dates (YYYY-MM-DD) or whole numbers"
        raise Failed("invalid", f"{path}: its facts have no times", hint)
    return found
