"""Files of rules: exported banks in all detail, and what is refused of these and of AMIE's."""

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import canonical
from shared.calls import TemporalSimple
from shared.errors import Invalid, InvalidLine, TooLarge
from shared.ingest import rule_files
from shared.ingest.lines import MAX_NAME_CHARS
from shared.ingest.rule_files import Incoming, RuleFileLimits
from shared.replies import Atom, Rule

HEADER = rule_files.Header(
    format=rule_files.FORMAT, version=1, miner="temporal-simple", rules=1, hash="a" * 64, graph_hash="b" * 64,
    limits=TemporalSimple(min_head_facts=7),
)  # fmt: skip
RULE = Rule(
    head=Atom("r", 0, 1), body=(Atom("q", 0, 2), Atom("q", 2, 1)), support=3, body_size=9, confidence=1 / 3,
    kind="xy", curve=(0.1, -2e-9),
)  # fmt: skip
FILE = rule_files.format_line(HEADER) + rule_files.format_line(RULE)
AMIE = b"?b  r  ?a   => ?a  r  ?b\t0.5\t0.5\t0.5\t2\t4\t4\t?a\n"
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


def open_rules(raw: bytes, limits: RuleFileLimits) -> Incoming:
    return rule_files.read(io.BufferedReader(io.BytesIO(raw)), "FILE", limits)  # type: ignore[arg-type]


def read(raw: bytes, limits: RuleFileLimits | None = None) -> list[Rule]:
    return list(open_rules(raw, limits or RuleFileLimits()).rules)


def edited(**changes: object) -> bytes:
    return FILE.replace(canonical.encode(RULE), canonical.encode({**canonical_fields(), **changes}))


def canonical_fields() -> dict[str, object]:
    return {name: getattr(RULE, name) for name in ("head", "body", "support", "body_size", "confidence")}


@given(NAMES, NAMES, st.floats(0, 1), st.lists(st.floats(-9, 9), max_size=3))
def test_what_is_written_is_read_again(relation: str, entity: str, share: float, curve: list[float]) -> None:
    rule = Rule(head=Atom(relation, 0, entity), body=(Atom(relation, 0, 2),), support=1, body_size=2,
                confidence=share, head_coverage=share, functional=1, curve=tuple(curve))  # fmt: skip
    raw = rule_files.format_line(HEADER) + rule_files.format_line(rule)
    assert read(raw) == [rule]
    assert open_rules(raw, RuleFileLimits()).header == HEADER


def test_the_first_line_says_what_the_bank_is() -> None:
    first = rule_files.format_line(HEADER).decode()
    assert first.startswith(
        f'{{"format":"mathrag-rules","version":1,"hash":"{"a" * 64}","miner":"temporal-simple","rules":1,'
        f'"graph_hash":"{"b" * 64}","limits":{{"miner":"temporal-simple",'
    )
    assert first.endswith('"min_head_facts":7}}\n')


def test_a_file_that_was_cut_off_between_lines_is_refused() -> None:
    with pytest.raises(Invalid, match=r"FILE: holds 0 rules, but its first line says 1"):
        read(rule_files.format_line(HEADER))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (FILE[:-9], "FILE, line 2: is not a rule (Input data was truncated)"),
        (edited(body=[["q", 3, 2]]), "line 2: variable 3 is out of order; number the head's variables"),
        (edited(body=[["q", -1, 1]]), "variable -1 is out of order"),
        (edited(head=["r", 0, 2]), "the head has a variable other than 0 and 1"),
        (edited(body=[["q", 0, 1]] * 17), "has 17 atoms in its body, but at most 16 are read"),
        (edited(confidence=1.5), "a confidence or the head coverage is not from 0 to 1"),
        (edited(support=-1), "a count is not from 0 to"),
        (edited(support=10**19), "a count is not from 0 to"),
        (rule_files.format_line(HEADER) + b'{"other":' + b"[" * 9999, "is not a rule (maximum recursion depth"),
        (edited(support="3"), "is not a rule (Expected `int`, got `str` - at `$.support`)"),
        (b'{"format":"mathrag-rules","version":2}\n', "line 1: is not the header of a bank that this release can read"),
    ],
)
def test_an_edited_file_that_holds_no_rule_is_refused_with_its_line(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read(raw)
    assert said in str(refused.value)


@pytest.mark.parametrize("raw", [AMIE, FILE])
def test_a_file_is_read_packed_or_not_and_with_a_byte_order_mark(raw: bytes) -> None:
    (rule,) = read(raw)
    for each in (gzip.compress(raw), b"\xef\xbb\xbf" + raw, raw.replace(b"\n", b"\r\n")):
        assert read(each) == [rule]


@pytest.mark.parametrize("raw", [AMIE, FILE])
def test_a_rule_that_comes_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid, match=r"FILE, line [23]: the rule occurs twice; remove one"):
        read(raw + raw.splitlines(keepends=True)[-1].replace(b"4", b"3"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a\tr\tb\n", "FILE: has no rules in AMIE's columns, and is not an exported bank"),
        (b"", "has no rules in AMIE's columns"),
        (b"Loading files...\n", "has no rules in AMIE's columns"),
        (b"4\t2\t0.5\tr(X,Y) <= r(Y,X)\n", "has no rules in AMIE's columns"),
        (b"Rule\tHead Coverage\tStd Confidence\n", "line 1: the header has no column `PCA Confidence`"),
        (b'{"relation2id":{},"rules":{}}', "FILE, line 1: is not the header of a bank"),
        (gzip.compress(AMIE * 99, mtime=0)[:-20], "FILE, line 1: the gzip file is truncated or damaged"),
        (b"\x1f\x8b" + AMIE, "the gzip file is truncated or damaged"),
        (FILE.replace(b'"q"', b'"q\\u0000"'), "line 2: a name holds the character \\u0000; remove it"),
        (AMIE.replace(b"r", b"r" * (MAX_NAME_CHARS + 1), 1), "has 1001 characters, more than 1000; shorten it"),
        (b"<!DOCTYPE html>\n" + AMIE, "line 1: is a web page, not the data"),
        (AMIE + b"\xff", "line 2: is not UTF-8 (byte 0)"),
        (AMIE + b"a\0b\n", "line 2: holds a NUL character"),
        (AMIE + b"x" * 2001, "line 2: is longer than 2000 bytes"),
    ],
)
def test_what_cannot_be_read_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(raw, RuleFileLimits(line_bytes=2000))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (RuleFileLimits(rules=1), "FILE: has more than 1 rules"),
        (RuleFileLimits(unpacked_bytes=60), "FILE unpacks to more than 60 bytes"),
    ],
)
def test_more_than_the_limits_allow_is_refused(limits: RuleFileLimits, said: str) -> None:
    assert read(AMIE, limits)
    with pytest.raises(TooLarge, match=said):
        read(gzip.compress(AMIE + AMIE.replace(b"r", b"q")), limits)


def about(*names: str) -> list[Rule]:
    return [
        Rule(head=Atom("r", 0, 1), body=(Atom(name, 0, 1),), support=1, body_size=1, confidence=1) for name in names
    ]


def test_rules_of_known_relations_pass() -> None:
    assert list(rule_files.only_known(about("r", "s"), {"r", "s", "t"}, "g")) == about("r", "s")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("ab", "name 2 relations that graph 'g' does not have: 'r', 'a'$"),
        ("abcdefgh", "'r', 'a', 'c', 'd', 'e' and 3 more"),
    ],
)
def test_unknown_relations_are_named_in_the_order_in_which_they_come(names: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        list(rule_files.only_known(about(*names), {"b"}, "g"))
