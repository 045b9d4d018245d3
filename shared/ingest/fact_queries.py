"""Read what a question of an upload asks of a graph."""

import msgspec

from shared.ingest import fields
from shared.ingest.lines import Defect, Fields
from shared.samples import FactQuery

QUERY = "query"
"""Field that holds an object in exported items; any other value is the question's text."""


def read(line: Fields) -> FactQuery | None:
    """Read `query` if it is an object, or else the relation in `relation`; None if there is neither.

    Raises:
        Defect: what is wrong with either.
    """
    given = line.get(QUERY)
    field = fields.find_given_name(line, fields.RELATION)
    relation = None if field is None else fields.text(line, field).strip() or None
    if not isinstance(given, dict):
        return None if relation is None else FactQuery(relation=relation)
    found = _convert(given)
    if relation not in (None, found.relation):
        raise Defect(f"`{field}` is {relation[:80]!r}, and `query.relation` {found.relation[:80]!r}; keep one of them")
    return found


def _convert(given: Fields) -> FactQuery:
    try:
        found = msgspec.convert(given, FactQuery)
    except msgspec.ValidationError as error:
        raise Defect(f"`query`: {error}; write it as in an exported item, or only name the `relation`") from error
    if not found.relation:
        raise Defect("`query.relation` is empty; name the relation")
    return found
