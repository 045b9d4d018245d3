"""What `mathrag rules evaluate` reads: a bank, the facts that its rules see, and those that they predict."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mathrag.client.errors import Failed
from shared.contracts.rules import Miner, Rule
from shared.errors import TooLarge
from shared.ingest import facts, graph_paths
from shared.ingest.rules import reading
from shared.rules.trial import Trial, make_trial
from shared.storage.graphs import Upload

MOST_FACTS = 1_000_000
"""Of each of both; a server takes as many by default."""
TEMPORAL: tuple[Miner, ...] = ("tlogic", "temporal-simple")


class Bank(NamedTuple):
    """Temporal rules."""

    miner: Miner
    rules: Sequence[Rule]


def read_bank(path: Path) -> Bank:
    """An exported bank.

    Raises:
        Failed: it is none, or its rules have no times.
        Invalid, TooLarge: as `reading.read` says.
    """
    with path.open("rb") as file:
        found = reading.read(file, str(path))
        if found.miner not in TEMPORAL:
            hint = f"rules of {' and '.join(TEMPORAL)} can be evaluated"
            raise Failed("invalid", f"{path}: rules of {found.miner} have no times, so they predict no facts", hint)
        if found.header is None:
            hint = "mathrag rules import it, then mathrag rules export NAME --out FILE"
            raise Failed("invalid", f"{path}: is no exported bank", hint)
        return Bank(found.miner, list(found.rules))


def read_trial(
    graph: Path, splits: Sequence[str], held_out: Path, held_out_splits: Sequence[str], limit: int | None
) -> Trial:
    """The facts of both.

    Raises:
        Failed: the times of both count different things.
        Failed, Invalid, NotFound: as `read_facts` says.
    """
    train, held = read_facts(graph, splits), read_facts(held_out, held_out_splits)
    if train.time_unit != held.time_unit:
        said = f"{held_out}: each fact has {facts.UNITS[held.time_unit]}, but {facts.UNITS[train.time_unit]} in {graph}"
        raise Failed("invalid", said, "write the times of both alike")
    return make_trial(train.graph, held.graph, limit)


def read_facts(path: Path, splits: Sequence[str]) -> Upload:
    """The facts of a file, or of these parts of a folder.

    Raises:
        Failed: they have no times, or there are too many.
        Invalid, NotFound: as `graph_paths.fact_lines` and `facts.read` say.
    """
    try:
        found = facts.read(graph_paths.fact_lines(path, splits), path.name, MOST_FACTS).upload
    except TooLarge as error:
        raise Failed("too_large", f"{path}: {error}", f"name a file of at most {MOST_FACTS} facts") from error
    if found.time_unit is None:
        hint = "temporal rules need a fourth column: dates (YYYY-MM-DD) or whole numbers"
        raise Failed("invalid", f"{path}: its facts have no times", hint)
    return found
