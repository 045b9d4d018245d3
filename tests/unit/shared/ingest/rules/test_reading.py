"""Files of rules in any format: how they are recognised, and what is refused of all of them."""

import gzip
import json

import pytest

from shared.contracts.rules import Atom, Rule
from shared.errors import Invalid, TooLarge
from shared.ingest.rules import bank, reading
from shared.ingest.rules.limits import DEFAULT, RuleFileLimits
from shared.ingest.rules.reading import Format
from tests.unit.shared.ingest.rules.reading_files import incoming

AMIE = b"?b  r  ?a   => ?a  r  ?b\t0.5\t0.5\t0.5\t2\t4\t4\t?a\n"
ANYBURL = b"4\t2\t0.5\tr(X,Y) <= r(Y,X)\n"
LEARNED = {"head_rel": 0, "body_rels": [1], "var_constraints": [], "conf": 0.5, "rule_supp": 2, "body_supp": 4}
TLOGIC = json.dumps({"relation2id": {"r": 0}, "rules": {"0": [LEARNED]}}).encode()
RULE = Rule(head=Atom("r", 0, 1), body=(Atom("r", 1, 0),), support=2, body_size=4, confidence=0.5)
HEADER = bank.Header(format=bank.FORMAT, version=1, miner="anyburl", rules=1, hash="a" * 64)
JSON = bank.line(HEADER) + bank.line(RULE)


def read(raw: bytes, named: Format = Format.AUTO, limits: RuleFileLimits = DEFAULT) -> list[Rule]:
    return list(incoming(raw, named, limits).rules)


@pytest.mark.parametrize(
    ("raw", "found"),
    [(AMIE, Format.AMIE), (ANYBURL, Format.ANYBURL), (TLOGIC, Format.TLOGIC), (JSON, Format.JSON),
     (b"Loading files...\nRule\tHead Coverage\n", Format.AMIE), (b'\xef\xbb\xbf {"1": []}', Format.TLOGIC)],
)  # fmt: skip
def test_a_format_is_recognised_by_how_the_file_begins(raw: bytes, found: Format) -> None:
    assert reading.recognise(raw, "FILE") is found


@pytest.mark.parametrize("raw", [AMIE, ANYBURL, TLOGIC, JSON])
def test_the_same_rule_is_read_from_every_format_packed_or_not(raw: bytes) -> None:
    for each in (raw, gzip.compress(raw)):
        (rule,) = read(each)
        assert (rule.head, rule.body, rule.support, rule.body_size) == (RULE.head, RULE.body, 2, 4)


@pytest.mark.parametrize(("raw", "miner"), [(AMIE, "amie"), (TLOGIC, "tlogic"), (JSON, "anyburl")])
def test_the_miner_says_what_the_figures_mean(raw: bytes, miner: str) -> None:
    assert incoming(raw).miner == miner


@pytest.mark.parametrize("raw", [AMIE, ANYBURL, JSON])
def test_a_rule_that_comes_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid, match=r"FILE, line [23]: the rule occurs twice; remove one"):
        read(raw + raw.splitlines(keepends=True)[-1].replace(b"2", b"3"))


def test_another_tools_file_is_refused_by_its_name() -> None:
    with pytest.raises(Invalid, match="FILE: looks like anyburl, not amie") as refused:
        read(ANYBURL, Format.AMIE)
    assert refused.value.hint == "import it as `anyburl`, or as `auto`"


@pytest.mark.parametrize(
    ("raw", "named", "said"),
    [
        (b"a\tr\tb\n", Format.AUTO, "FILE: is not recognised as AMIE's TSV"),
        (b"", Format.AUTO, "is not recognised"),
        (b"Loading files...\n", Format.AMIE, "FILE: has no rules"),
        (b"Rule\tHead Coverage\tStd Confidence\n", Format.AMIE, "line 1: the header has no column `PCA Confidence`"),
        (b"\n", Format.ANYBURL, "has no rules"),
        (b'{"relation2id":{},"rules":{}}', Format.AUTO, "has no rules"),
        (gzip.compress(AMIE * 99, mtime=0)[:-20], Format.AUTO, "FILE, line 1: the gzip file is truncated or damaged"),
        (gzip.compress(TLOGIC, mtime=0)[:-20], Format.AUTO, "the gzip file is truncated or damaged"),
        (b"\x1f\x8b" + AMIE, Format.AUTO, "the gzip file is truncated or damaged"),
        (JSON.replace(b'"r"', b'"r\\u0000"'), Format.AUTO, "line 2: a name holds the character \\u0000; remove it"),
        (b"<!DOCTYPE html>\n" + AMIE, Format.AUTO, "line 1: is a web page, not the data"),
        (ANYBURL + b"\xff", Format.AUTO, "line 2: is not UTF-8 (byte 0)"),
        (ANYBURL + b"a\0b\n", Format.AUTO, "line 2: holds a NUL character"),
        (ANYBURL + b"x" * 201, Format.AUTO, "line 2: is longer than 200 bytes"),
    ],
)
def test_what_cannot_be_read_is_refused(raw: bytes, named: Format, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(raw, named, DEFAULT._replace(line_bytes=200))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (DEFAULT._replace(rules=1), "FILE: has more than 1 rules"),
        (DEFAULT._replace(unpacked_bytes=60), "FILE unpacks to more than 60 bytes"),
    ],
)
def test_more_than_the_limits_allow_is_refused(limits: RuleFileLimits, said: str) -> None:
    assert read(AMIE, limits=limits)
    with pytest.raises(TooLarge, match=said):
        read(gzip.compress(AMIE + AMIE.replace(b"r", b"q")), limits=limits)
