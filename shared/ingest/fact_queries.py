"""What a question of an upload asks of a graph."""

import msgspec

from shared.contracts.graphs import FactQuery
from shared.ingest import fields
from shared.ingest.lines import Defect, Fields

QUERY = "query"
"""An object here is what an exported item says; anything else is the question's text."""


def read(line: Fields) -> FactQuery | None:
    """`query` where it is an object, else the relation that `relation` names; None: nothing is said.

    Raises:
        Defect: what is wrong with either.
    """
    given = line.get(QUERY)
    field = fields.first(line, fields.RELATION)
    relation = None if field is None else fields.text(line, field).strip() or None
    if not isinstance(given, dict):
        return None if relation is None else FactQuery(relation=relation)
    found = _converted(given)
    if relation not in (None, found.relation):
        raise Defect(f"`{field}` is {relation[:80]!r}, and `query.relation` {found.relation[:80]!r}; keep one of them")
    return found


def _converted(given: Fields) -> FactQuery:
    try:
        found = msgspec.convert(given, FactQuery)
    except msgspec.ValidationError as error:
        raise Defect(f"`query`: {error}; write it as an exported item has it, or name the `relation` alone") from error
    if not found.relation:
        raise Defect("`query.relation` is empty; name the relation")
    return found
