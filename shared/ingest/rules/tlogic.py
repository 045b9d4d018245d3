"""TLogic's JSON (Liu et al. 2022): lists of rules by the number of their head's relation.

Relations are numbers there: `relation2id.json` of the data has their names. With n relations, n + i is the inverse of
relation i, unless the map itself names inverse relations, by the prefix `_`. Both files are read as one document:
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
    """One rule as TLogic writes it; the body begins where the head does, and `var_constraints` holds the places of
    equal entities along it."""

    head_rel: Number
    body_rels: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=MOST_ATOMS)]
    var_constraints: Annotated[list[list[Place]], msgspec.Meta(max_length=MOST_ATOMS)]
    conf: Annotated[float, msgspec.Meta(ge=0, le=1)]
    rule_supp: Number
    body_supp: Number


class Document(msgspec.Struct, frozen=True):
    """Both files of TLogic's; rules are decoded one by one."""

    relation2id: dict[str, Number]
    rules: dict[str, list[msgspec.Raw]]


class Relation(msgspec.Struct, frozen=True):
    """What a number means."""

    name: str
    is_inverse: bool

    def atom(self, subject: int, object_: int) -> Atom:
        """That it holds; of an inverse relation, the relation with its terms exchanged."""
        return Atom(self.name, object_, subject) if self.is_inverse else Atom(self.name, subject, object_)


def together(rules: bytes, relation2id: bytes) -> bytes:
    """One document of TLogic's two files."""
    return b'{"%b":%b,"rules":%b}' % (MAP.encode(), relation2id, rules)


def read(raw: bytes, source: str) -> Iterator[tuple[str, Rule]]:
    """Each rule with its place ("rule 3 of head relation 12").

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
                said = f"relation {error} is not in the map" if isinstance(error, KeyError) else str(error)
                raise Invalid(f"{source}, {place}: {said}") from error


def _document(raw: bytes, source: str) -> Document:
    try:
        if MAP not in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]):
            said = f"{source}: TLogic's file has numbers instead of relations; their names are needed"
            raise Invalid(said, hint="give relation2id.json of the data that TLogic learned from; see docs/rules.md")
        return msgspec.json.decode(raw, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = f"{source}: is not TLogic's JSON, lists of rules by head relation ({error})"
        raise Invalid(said, hint="copy the file again if it is cut off") from error


def _relations(numbers: Mapping[str, int], source: str) -> Mapping[int, Relation]:
    """What numbers mean, those of inverse relations among them."""
    named = {number: _relation(name, numbers) for name, number in numbers.items()}
    if len(named) < len(numbers):
        raise Invalid(f"{source}: two relations of `{MAP}` have the same number")
    plain = [number for number, relation in named.items() if not relation.is_inverse]
    inverse = {number + len(plain): Relation(named[number].name, is_inverse=True) for number in plain}
    return named if len(plain) < len(named) else named | inverse


def _relation(name: str, numbers: Mapping[str, int]) -> Relation:
    plain = name.removeprefix(INVERSE)
    is_inverse = plain != name and plain in numbers
    return Relation(plain if is_inverse else name, is_inverse)


def _rule(learned: Learned, relations: Mapping[int, Relation]) -> Rule:
    places = _variables(learned)
    return Rule(
        head=relations[learned.head_rel].atom(places[0], places[-1]),
        body=tuple(relations[number].atom(places[i], places[i + 1]) for i, number in enumerate(learned.body_rels)),
        support=learned.rule_supp,
        body_size=learned.body_supp,
        confidence=learned.conf,
    )


def _variables(learned: Learned) -> list[int]:
    """The variable at every place along the body: 0 at the first, 1 at the last, those between from 2."""
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
