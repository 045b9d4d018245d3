"""AnyBURL's text."""

import pytest

from shared.contracts.rules import Atom, Rule
from shared.errors import InvalidLine
from shared.ingest.rules.reading import Format
from tests.unit.shared.ingest.rules.reading_files import incoming


def read(text: str) -> list[Rule]:
    return list(incoming(text.encode(), Format.ANYBURL).rules)


def parts(text: str) -> tuple[Atom, tuple[Atom, ...]]:
    (rule,) = read(f"42\t3\t0.0714\t{text}\n")
    return rule.head, rule.body


def test_a_line_is_predicted_correct_confidence_and_rule() -> None:
    assert read("2000\t216\t0.108\tp(X,Y) <= q(X,A), r(A,B), s(Y,B)\n\n") == [
        Rule(
            head=Atom("p", 0, 1), body=(Atom("q", 0, 2), Atom("r", 2, 3), Atom("s", 1, 3)),
            support=216, body_size=2000, confidence=0.108,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [
        ("P106(X,Q520549) <= P101(X,Q413)", Atom("P106", 0, "Q520549"), [Atom("P101", 0, "Q413")]),
        ("born(paris,Y) <= in(Y,A)", Atom("born", "paris", 1), [Atom("in", 1, 2)]),
        ("likes(X,me_myself_i) <= knows(me_myself_i,X)", Atom("likes", 0, 0), [Atom("knows", 0, 0)]),
        ("sex(X,female) <= ", Atom("sex", 0, "female"), []),
        ("sex(X,female) <=", Atom("sex", 0, "female"), []),
        ("Say(X,Judge_(India)) <= Say_(old)(X,A)", Atom("Say", 0, "Judge_(India)"), [Atom("Say_(old)", 0, 2)]),
        (
            "Abduct,_hijack,_or_take_hostage(X,Y) <= in(X,Washington, D.C.), at(Foo_(a), Bar,Y), r(X,Y)",
            Atom("Abduct,_hijack,_or_take_hostage", 0, 1),
            [Atom("in", 0, "Washington, D.C."), Atom("at", "Foo_(a), Bar", 1), Atom("r", 0, 1)],
        ),
    ],
)  # fmt: skip
def test_constants_and_names_with_commas_and_brackets_are_taken_apart(text: str, head: Atom, body: list[Atom]) -> None:
    assert parts(text) == (head, tuple(body))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1\t1\tp(X,Y) <= q(X,Y)", "FILE, line 2: has 3 columns, not 4 (predicted, correct, confidence, rule)"),
        ("1\t1.5\t0.5\tp(X,Y) <= q(X,Y)", "`correct` is '1.5', not a whole number"),
        ("1\t1\t7\tp(X,Y) <= q(X,Y)", "`confidence` is 7; it must be from 0 to 1"),
        ("1\t1\t0.5\tp(X,Y)", "'p(X,Y)' has no `<=` after its head"),
        ("1\t1\t0.5\tp(X,Y) <= q(X,Y", "'q(X,Y' is not an atom; brackets must come in pairs, also in names"),
        ("1\t1\t0.5\tp(X,Y) <= q(X,a:(), q(X,Y)", "brackets must come in pairs, also in names"),
        ("1\t1\t0.5\tp(X,Y) <= q", "'q' is not an atom such as relation(X,Y)"),
        ("1\t1\t0.5\tp(X,Y) <= (X,Y)", "'(X,Y)' is not an atom such as relation(X,Y)"),
        ("1\t1\t0.5\tp(X,Y) <= q(X,a,Y)", "'X,a,Y' is not two terms with one comma between them"),
        ("1\t1\t0.5\tp(X,Y) <= q(X)", "'X' is not two terms with one comma between them"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_line(line: str, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read(f"1\t1\t0.5\tp(X,Y) <= r(X,Y)\n{line}\n")
    assert said in str(refused.value)
