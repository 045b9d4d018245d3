"""AMIE's TSV: as AMIE3 prints it, as it is kept, and as we write it."""

import gzip
import io
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Invalid, InvalidLine
from shared.ingest import amie, rule_files
from shared.replies import Atom, Rule
from shared.settings import REPOSITORY

KINSHIP = REPOSITORY.parent / "shared" / "data" / "kg" / "kinship" / "amie-rules.tsv"
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
        head=Atom(draw(AMIE_NAMES), 0, path[-1]), body=body, support=support, body_size=support, confidence=draw(SHARES),
        head_coverage=draw(SHARES), pca_confidence=draw(SHARES), pca_body_size=support, functional=0,
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
    assert amie.line(AMIE_RULE) == (
        "?c  lives in  ?b  ?a  knows  ?c   => ?a  lives in  ?b\t0.250000000\t0.500000000\t0.625000000\t5\t10\t8\t?b"
    )


@given(rules())
def test_what_is_written_is_read_again_as_the_same_rule(rule: Rule) -> None:
    assert read_amie(amie.line(rule)) == [rule]


def test_standard_confidence_that_was_not_computed_is_0_of_0() -> None:
    short = "\t".join(amie.NEEDED) + "\n?b  r  ?a   => ?a  r  ?b\t0.5\t0.5\t2\t4\t?a\n"
    found = read_amie("?b  r  ?a   => ?a  r  ?b\t0.5\t-1\t0.5\t2\t-1\t4\t?a\n")
    assert found == read_amie(short)
    assert (found[0].confidence, found[0].body_size, found[0].certainty) == (0, 0, 0.5)
    assert amie.line(found[0]).split("\t")[2::3] == ["-1", "-1"]


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
        (LINE.replace("?b\t", "b  c\t"), "'?a  lives in  b  c' is not atoms of three names"),
        ("r(?b,?a)  => r(?a,?b)\t.5\t.5\t.5\t1\t2\t2\t?a", "AMIE prints them so without `-datalog`"),
        (LINE.replace("=> ", "=> ?a  knows  ?b  "), "is not a head of one atom"),
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
        amie.line(Rule(head=AMIE_RULE.head, body=(atom,), support=1, body_size=1, confidence=1, head_coverage=1,
                       pca_confidence=1, pca_body_size=1, functional=0))  # fmt: skip


def test_rules_without_amies_figures_are_not_written() -> None:
    with pytest.raises(Invalid, match="head coverage and PCA confidence") as refused:
        amie.line(Rule(head=AMIE_RULE.head, body=AMIE_RULE.body, support=1, body_size=1, confidence=1))
    assert refused.value.hint == "export as json"


@pytest.mark.skipif(not KINSHIP.exists(), reason="../shared/data/kg is not there")
def test_amie3s_own_file_of_kinship_comes_back_but_for_names_of_variables_and_trailing_zeros() -> None:
    text = KINSHIP.read_text()
    written = "".join(f"{amie.line(rule)}\n" for rule in read_amie(text))
    assert re.sub(r"(\.\d*[1-9])0+\t|\.0+\t", r"\1\t", written) == re.sub(r"\?[gh]", "?c", text)
