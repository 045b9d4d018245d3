"""Read AnyBURL's text (Meilicke et al. 2019): `predicted<TAB>correct<TAB>confidence<TAB>head(X,Y) <= b1(X,A), b2(A,Y)`.

A variable is one capital letter; all else is an entity. `me_myself_i` is AnyBURL's word for the entity at the other
place of its atom. Names may hold commas and balanced brackets.
"""

from collections.abc import Iterator

from shared.contracts.rules import Rule
from shared.ingest.lines import Defect, locate_defect
from shared.ingest.rules import figures, terms
from shared.ingest.rules.terms import NamedAtom
from shared.ingest.text_files import Sound

COLUMNS = ("predicted", "correct", "confidence", "rule")
ARROW = " <="
END = "), "
"""Separator of the atoms in a body, which may also occur in a name."""
SELF = "me_myself_i"


def read(lines: Iterator[Sound], source: str) -> Iterator[tuple[str, Rule]]:
    """Yield each rule with its place ("line 7"); empty lines are skipped.

    Raises:
        InvalidLine: a line is no rule of AnyBURL's.
    """
    for number, line in lines:
        try:
            if line.strip():
                yield f"line {number}", rule(line)
        except Defect as defect:
            raise locate_defect(defect, source, number) from defect


def rule(line: str) -> Rule:
    """Read the rule on a line.

    Raises:
        Defect: it has none.
    """
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise Defect(f"has {len(cells)} columns, not {len(COLUMNS)} ({', '.join(COLUMNS)}) separated by tabs")
    predicted, correct, confidence, text = cells
    named_head, named_body = _sides(text)
    head, body = terms.number_variables(named_head, named_body, _is_variable)
    return Rule(
        head=head,
        body=body,
        support=figures.count("correct", correct),
        body_size=figures.count("predicted", predicted),
        confidence=figures.share("confidence", confidence),
    )


def _sides(text: str) -> tuple[NamedAtom, list[NamedAtom]]:
    head, arrow, body = text.partition(")" + ARROW)
    if not arrow:
        raise Defect(f"{text[:80]!r} has no `{ARROW.strip()}` after its head")
    return _atom(head + ")"), [_atom(atom) for atom in _split(body.strip())]


def _split(body: str) -> Iterator[str]:
    """Split into atoms, at each `), ` that leaves balanced brackets on both sides."""
    if not body:
        return
    *others, last = body.split(END)
    atom = ""
    for piece in (*(f"{other})" for other in others), last):
        atom = f"{atom}, {piece}" if atom else piece
        if atom.count("(") == atom.count(")"):
            yield atom
            atom = ""
    if atom:
        raise Defect(f"{atom[:80]!r} is not an atom; brackets must come in pairs, also in names")


def _atom(text: str) -> NamedAtom:
    """Read `relation(term,term)`: the relation ends at the bracket that the last one closes."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            break
    inner = text[place + 1 : -1]
    if not text.endswith(")") or depth or place == 0:
        raise Defect(f"{text[:80]!r} is not an atom such as relation(X,Y)")
    subject, object_ = _terms(inner)
    return NamedAtom(text[:place], *_resolve_self(subject, object_))


def _terms(inner: str) -> tuple[str, str]:
    """Read both terms; of several commas, the one that makes a term a variable separates them."""
    ways = [(inner[:place], inner[place + 1 :]) for place, sign in enumerate(inner) if sign == ","]
    if len(ways) > 1:
        ways = [way for way in (ways[0], ways[-1]) if any(map(_is_variable, way))]
    if len(ways) != 1 or not all(ways[0]):
        raise Defect(f"{inner[:80]!r} is not two terms with one comma between them")
    return ways[0]


def _resolve_self(subject: str, object_: str) -> tuple[str, str]:
    return (object_ if subject == SELF else subject), (subject if object_ == SELF else object_)


def _is_variable(name: str) -> bool:
    return len(name) == 1 and "A" <= name <= "Z"
