"""Which relations rules name, and whether a graph has them."""

from collections.abc import Collection, Iterable, Iterator

from shared.contracts.rules import Rule
from shared.errors import Invalid
from shared.plurals import format_count

NAMED = 5
"""Unknown relations that an error names."""


def only_known(rules: Iterable[Rule], relations: Collection[str], graph: str) -> Iterator[Rule]:
    """The rules, and an error at the end if they named a relation that the graph does not have.

    Raises:
        Invalid: they did; the message has the first five and how many there are.
    """
    unknown: dict[str, None] = {}
    for rule in rules:
        names = (atom.relation for atom in (rule.head, *rule.body))
        unknown.update(dict.fromkeys(name for name in names if name not in relations))
        yield rule
    if unknown:
        first = ", ".join(map(repr, list(unknown)[:NAMED]))
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        relations_named = format_count(len(unknown), "relation")
        said = f"the rules name {relations_named} that graph {graph!r} does not have: {first}{more}"
        raise Invalid(said, hint="import them without the graph, or for the graph that they were mined from")
