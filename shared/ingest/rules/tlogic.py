"""Read TLogic's JSON (Liu et al. 2022): lists of rules by the number of their head's relation.

Relations are numbers there, whose names are in the data's `relation2id.json`. With n relations, n + i is the inverse of
relation i, unless the map itself names inverse relations with the prefix `_`. Both files are read as one document:
`{"relation2id": {...}, "rules": {...}}`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from shared.contracts.rules import Atom, Rule
from shared.errors import Invalid
from shared.ingest.rules.figures import MOST
from shared.ingest.rules.terms import MOST_ATOMS

INVERSE = "_"
MAP = "relation2id"
Place = Annotated[int, msgspec.Meta(ge=0, le=MOST_ATOMS)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class Learned(msgspec.Struct, frozen=True):
    """A rule as TLogic writes it. The body begins where the head does; `var_constraints` has the positions of equal
    entities along the body."""

    head_rel: Number
    body_rels: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=MOST_ATOMS)]
    var_constraints: Annotated[list[list[Place]], msgspec.Meta(max_length=MOST_ATOMS)]
    conf: Annotated[float, msgspec.Meta(ge=0, le=1)]
    rule_supp: Number
    body_supp: Number


class TLogicFiles(msgspec.Struct, frozen=True):
    """Both files of TLogic; rules are decoded one by one."""

    relation2id: dict[str, Number]
    rules: dict[str, list[msgspec.Raw]]


class NumberedRelation(msgspec.Struct, frozen=True):
    """The relation that a number stands for."""

    name: str
    is_inverse: bool

    def atom(self, subject: int, object_: int) -> Atom:
        """Make an atom of the relation; for an inverse relation, the terms are exchanged."""
        return Atom(self.name, object_, subject) if self.is_inverse else Atom(self.name, subject, object_)


def join_files(rules: bytes, relation2id: bytes) -> bytes:
    """Join TLogic's two files into one document."""
    return b'{"%b":%b,"rules":%b}' % (MAP.encode(), relation2id, rules)


def read(raw: bytes, source: str) -> Iterator[tuple[str, Rule]]:
    """Yield each rule with its place ("rule 3 of head relation 12").

    Raises:
        Invalid: this is not TLogic's, the map is missing, or a rule names a relation that it does not have.
    """
    document = _document(raw, source)
    relations = _relations(document.relation2id, source)
    for head, rules in document.rules.items():
        for number, rule in enumerate(rules, start=1):
            place = f"rule {number} of head relation {head}"
            try:
                yield place, _rule(msgspec.json.decode(rule, type=Learned), relations)
            except (msgspec.ValidationError, KeyError) as error:
                problem = f"relation {error} is not in `relation2id`" if isinstance(error, KeyError) else str(error)
                raise Invalid(f"{source}, {place}: {problem}") from error


def _document(raw: bytes, source: str) -> TLogicFiles:
    try:
        if MAP not in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]):
            said = f"{source}: TLogic's file has numbers instead of relation names"
            raise Invalid(said, hint="add relation2id.json of the data that TLogic learned from (docs/how-to/rules.md)")
        return msgspec.json.decode(raw, type=TLogicFiles)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = f"{source}: is not TLogic's JSON, lists of rules by head relation ({error})"
        raise Invalid(said, hint="copy the file again if it is truncated") from error


def _relations(numbers: Mapping[str, int], source: str) -> Mapping[int, NumberedRelation]:
    """Return the relations by number, including inverse ones."""
    named = {number: _relation(name, numbers) for name, number in numbers.items()}
    if len(named) < len(numbers):
        raise Invalid(f"{source}: two relations of `{MAP}` have the same number")
    plain = [number for number, relation in named.items() if not relation.is_inverse]
    inverse = {number + len(plain): NumberedRelation(named[number].name, is_inverse=True) for number in plain}
    return named if len(plain) < len(named) else named | inverse


def _relation(name: str, numbers: Mapping[str, int]) -> NumberedRelation:
    plain = name.removeprefix(INVERSE)
    is_inverse = plain != name and plain in numbers
    return NumberedRelation(plain if is_inverse else name, is_inverse)


def _rule(learned: Learned, relations: Mapping[int, NumberedRelation]) -> Rule:
    places = _variables(learned)
    return Rule(
        head=relations[learned.head_rel].atom(places[0], places[-1]),
        body=tuple(relations[number].atom(places[i], places[i + 1]) for i, number in enumerate(learned.body_rels)),
        support=learned.rule_supp,
        body_size=learned.body_supp,
        confidence=learned.conf,
    )


def _variables(learned: Learned) -> list[int]:
    """Return the variable at every place along the body: 0 at the first, 1 at the last, and from 2 in between."""
    last = len(learned.body_rels)
    first_place = list(range(last + 1))
    for places in learned.var_constraints:
        for place in places:
            if place > last:
                raise msgspec.ValidationError(f"`var_constraints` names place {place} of a body of {last} atoms")
            first_place[place] = min(places)
    numbers = {first_place[last]: 1} | {0: 0}  # the first wins where both are the same entity
    for place in first_place:
        numbers.setdefault(place, len(set(numbers.values()) | {0, 1}))
    return [numbers[place] for place in first_place]
