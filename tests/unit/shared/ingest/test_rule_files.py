"""Files of rules: exported banks and AMIE's TSV, read and written."""

import gzip
import io
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid, InvalidLine, TooLarge
from mathrag.reading.lines import MAX_NAME_CHARS
from shared import canonical
from shared.calls import TemporalSimple
from shared.ingest import amie, rule_files
from shared.ingest.rule_files import Incoming, RuleFileLimits
from shared.replies import Atom, Rule
from tests.unit.datasets import DATA, needs

# Files of rules: exported banks in all detail, and what is refused of these and of AMIE's.

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
        (FILE[:-9], "FILE, line 2: is not a valid rule (Input data was truncated); export the bank again"),
        (edited(body=[["q", 3, 2]]), "line 2: variable 3 is out of order; number the head's variables"),
        (edited(body=[["q", -1, 1]]), "variable -1 is out of order"),
        (edited(head=["r", 0, 2]), "the head has a variable other than 0 and 1"),
        (edited(body=[["q", 0, 1]] * 17), "has 17 atoms in its body, but at most 16 are read"),
        (edited(confidence=1.5), "a confidence or the head coverage is not from 0 to 1"),
        (edited(support=-1), "a count is not from 0 to"),
        (edited(support=10**19), "a count is not from 0 to"),
        (rule_files.format_line(HEADER) + b'{"other":' + b"[" * 9999, "is not a valid rule (maximum recursion depth"),
        (edited(support="3"), "is not a valid rule (Expected `int`, got `str` - at `$.support`)"),
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
        (b"a\tr\tb\n", "FILE has no rules in AMIE's columns, and is not an exported bank"),
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
        (AMIE + b"a\0b\n", "line 2: contains a NUL character"),
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
        (RuleFileLimits(rules=1), "FILE has more than 1 rules"),
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


# AMIE's TSV: as AMIE3 prints it, as it is kept, and as we write it.

AMIE_HEADER = "\t".join(amie.COLUMNS)
LINE = "?g  lives in  ?b  ?a  knows  ?g   => ?a  lives in  ?b\t0.25\t0.5\t0.625\t5\t10\t8\t?b"
AMIE_RULE = Rule(
    head=Atom("lives in", 0, 1), body=(Atom("lives in", 2, 1), Atom("knows", 0, 2)), support=5, body_size=10,
    confidence=0.5, head_coverage=0.25, pca_confidence=0.625, pca_body_size=8, functional=1,
)  # fmt: skip
PRINTED = f"""Assuming <type> as type relation
Loading files...
  Starting the mining phase... {AMIE_HEADER}\tStd. Lower Bound
{LINE}\t0.0
Mining done in 12 s
Total time 12 s
1 rules mined.
"""
AMIE_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1, max_size=8).filter(
    lambda name: name == name.strip() and "  " not in name and not name.startswith("?")
)
SHARES = st.floats(0, 1)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    path = [0, *range(2, draw(st.integers(2, 4))), draw(st.sampled_from([1, "Paris"]))]
    body = tuple(Atom(draw(AMIE_NAMES), *pair) for pair in pairwise(path))
    support = draw(st.integers(1, 99))
    return Rule(
        head=Atom(draw(AMIE_NAMES), 0, path[-1]), body=body, support=support, body_size=support,
        confidence=draw(SHARES), head_coverage=draw(SHARES), pca_confidence=draw(SHARES), pca_body_size=support,
        functional=0,
    )  # fmt: skip


def read_amie(text: str | bytes) -> list[Rule]:
    raw = text.encode() if isinstance(text, str) else text
    file = io.BufferedReader(io.BytesIO(raw))  # type: ignore[arg-type]
    return list(rule_files.read(file, "FILE", rule_files.RuleFileLimits()).rules)


@pytest.mark.parametrize(
    "text", [LINE, f"{LINE}\r\n", f"\ufeff{AMIE_HEADER}\n{LINE}\n", PRINTED, gzip.compress(PRINTED.encode(), mtime=0)]
)
def test_what_amie_prints_is_read_with_or_without_its_header(text: str | bytes) -> None:
    assert read_amie(text) == [AMIE_RULE]


def test_a_rule_is_written_as_amie_prints_it() -> None:
    assert amie.format_line(AMIE_RULE) == (
        "?c  lives in  ?b  ?a  knows  ?c   => ?a  lives in  ?b\t0.250000000\t0.500000000\t0.625000000\t5\t10\t8\t?b"
    )


@given(rules())
def test_what_is_written_is_read_again_as_the_same_rule(rule: Rule) -> None:
    assert read_amie(amie.format_line(rule)) == [rule]


def test_standard_confidence_that_was_not_computed_is_0_of_0() -> None:
    short = "\t".join(amie.NEEDED) + "\n?b  r  ?a   => ?a  r  ?b\t0.5\t0.5\t2\t4\t?a\n"
    found = read_amie("?b  r  ?a   => ?a  r  ?b\t0.5\t-1\t0.5\t2\t-1\t4\t?a\n")
    assert found == read_amie(short)
    assert (found[0].confidence, found[0].body_size, found[0].certainty) == (0, 0, 0.5)
    assert amie.format_line(found[0]).split("\t")[2::3] == ["-1", "-1"]


def test_constants_stand_where_variables_would() -> None:
    found = read_amie("?b  works in  Paris   => Zoé  knows  ?b\t0.5\t0.5\t0.5\t2\t4\t4\t?b")
    assert (found[0].head, found[0].body) == (Atom("knows", "Zoé", 1), (Atom("works in", 1, "Paris"),))


def test_a_single_space_before_the_arrow_is_enough() -> None:
    assert read_amie(LINE.replace("   =>", " =>")) == [AMIE_RULE]


def test_an_arrow_in_a_name_parts_nothing() -> None:
    assert read_amie("?b  a => b  ?a   => ?a  a => b  ?b\t0.5\t0.5\t0.5\t2\t4\t4\t?b")[0].head.relation == "a => b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LINE}\n{LINE.replace('10', 'x')}", "FILE, line 2: `Body size` is 'x', not a whole number"),
        (LINE.replace("0.25", "1.25"), "line 1: `Head Coverage` is 1.25; it must be from 0 to 1"),
        (LINE.replace("0.625", "0,625"), "`PCA Confidence` is '0,625', not a number; write decimal points"),
        (LINE.replace("0.625", "NaN"), "`PCA Confidence` is 'NaN', not a number"),
        (LINE[: LINE.index("\t8")], "has 6 of 8 columns (Rule, Head Coverage"),
        (f"{AMIE_HEADER.replace('Head Coverage', 'hc')}\n{LINE}", "line 1: the header has no column `Head Coverage`"),
        (LINE.replace("?b\t", "b  c\t"), "'?a  lives in  b  c' is not a list of atoms with three names each"),
        ("r(?b,?a)  => r(?a,?b)\t.5\t.5\t.5\t1\t2\t2\t?a", "separated by two spaces (as AMIE without `-datalog`)"),
        (
            LINE.replace("=> ", "=> ?a  knows  ?b  "),
            "the rule's head '?a  knows  ?b  ?a  lives in  ?b' must be exactly one atom",
        ),
        (LINE[:-1] + "g", "`Functional variable` is '?g', not a variable of the head"),
        (f"{LINE}\nsegmentation fault", "line 2: 'segmentation fault' has no `=>` between body and head"),
        ("?a  r  ?b  " * 17 + LINE, "has 19 atoms in its body, but at most 16 are read"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_amie(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("atom", "said"),
    [
        (Atom("a  b", 1, 0), "cannot hold a name with a tab"),
        (Atom("r", 1, "?who"), "'?who' would be read as a variable"),
        (Atom("", 1, 0), "cannot hold a name"),
    ],
)
def test_a_name_that_the_notation_cannot_hold_is_not_written(atom: Atom, said: str) -> None:
    with pytest.raises(Invalid, match=re.escape(said)):
        amie.format_line(Rule(head=AMIE_RULE.head, body=(atom,), support=1, body_size=1, confidence=1, head_coverage=1,
                       pca_confidence=1, pca_body_size=1, functional=0))  # fmt: skip


def test_rules_without_amies_figures_are_not_written() -> None:
    with pytest.raises(Invalid, match="head coverage and PCA confidence") as refused:
        amie.format_line(Rule(head=AMIE_RULE.head, body=AMIE_RULE.body, support=1, body_size=1, confidence=1))
    assert refused.value.hint == "export as json"


@needs("kg/kinship")
def test_amie3s_own_file_of_kinship_comes_back_but_for_names_of_variables_and_trailing_zeros() -> None:
    text = (DATA / "kg" / "kinship" / "amie-rules.tsv").read_text()
    written = "".join(f"{amie.format_line(rule)}\n" for rule in read_amie(text))
    assert re.sub(r"(\.\d*[1-9])0+\t|\.0+\t", r"\1\t", written) == re.sub(r"\?[gh]", "?c", text)
