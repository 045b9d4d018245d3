"""`mathrag rules evaluate`: a bank and facts from files, measures by hand."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mathrag.cli import link_prediction
from mathrag.cli.failures import Exit
from mathrag.cli.main import app
from shared.contracts.rules import Atom, Miner, Rule
from shared.ingest.rules import bank

FOLLOWS = Rule(
    head=Atom("signs", 0, 1), body=(Atom("visits", 0, 1),), support=2, body_size=4, confidence=0.5,
)  # fmt: skip
FREQUENT = Rule(
    head=Atom("signs", 0, "bob"), body=(Atom("signs", 2, 3),), support=1, body_size=2, confidence=0.5,
    kind="frequent entity", curve=(0.2,),
)  # fmt: skip
TRAIN = "ann\tvisits\tbob\t1\nann\tvisits\tcid\t2\ndan\tsigns\teve\t1\n"
HELD_OUT = "ann\tsigns\tbob\t3\nfay\tsigns\tbob\t3\n"


def written(rules: Iterable[Rule], miner: Miner = "tlogic") -> bytes:
    lines = [bank.line(rule) for rule in rules]
    head = bank.Header(format=bank.FORMAT, version=1, hash="a" * 64, miner=miner, rules=len(lines))
    return b"".join((bank.line(head), *lines))


def evaluate(folder: Path, bank_file: bytes, *options: str, train: str = TRAIN, held_out: str = HELD_OUT) -> Result:
    files = {"bank": bank_file, "train.tsv": train.encode(), "test.tsv": held_out.encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    paths = ("--graph", str(folder / "train.tsv"), "--facts", str(folder / "test.tsv"))
    return CliRunner().invoke(app, ["rules", "evaluate", str(folder / "bank"), *paths, *options])


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_measures_are_those_that_one_computes_by_hand(tmp_path: Path) -> None:
    """What ann signs: cid, whom she visited later, is before bob: rank 2.

    What fay signs: nothing is known of her, and six entities share the places: 3.5. Who signs bob: no rule says; ann is
    one of five, as fay is true as well: 3. Fay is named by no training fact: missed.
    """
    found = printed(evaluate(tmp_path, written([FOLLOWS]), "--json"))
    assert found["mrr"]["value"] == pytest.approx((1 / 2 + 2 / 7 + 1 / 3 + 0) / 4)
    assert [found[name]["value"] for name in ("hits_1", "hits_3", "hits_10")] == [0, 0.5, 0.75]
    counts = {name: found[name] for name in found if isinstance(found[name], int)}
    assert counts == {
        "rules": 1, "queries": 4, "without_candidate": 3, "unknown_questions": 1, "unknown_answers": 1, "missed": 1,
    }  # fmt: skip


def test_an_unknown_entity_is_found_by_what_is_held_out_and_earlier(tmp_path: Path) -> None:
    held_out = "fay\tvisits\tgus\t2\nfay\tsigns\tgus\t3\n"
    found = printed(evaluate(tmp_path, written([FOLLOWS]), "--json", held_out=held_out))
    assert (found["mrr"]["value"], found["unknown_answers"], found["missed"]) == (0.25, 4, 3)


def test_simple_rules_and_packed_files_do_as_well(tmp_path: Path) -> None:
    packed = gzip.compress(written([FREQUENT], "temporal-simple"))
    found = printed(evaluate(tmp_path, packed, "--limit", "1", "--json"))
    assert (found["miner"], found["queries"], found["without_candidate"]) == ("temporal-simple", 2, 1)
    assert found["hits_1"]["value"] == 0.5


def test_folders_have_splits(tmp_path: Path) -> None:
    evaluate(tmp_path, written([FOLLOWS]))
    paths = ("--graph", str(tmp_path), "--facts", str(tmp_path), "--json")
    both = CliRunner().invoke(app, ["rules", "evaluate", str(tmp_path / "bank"), *paths, "--split", "train,test"])
    assert (printed(both)["queries"], printed(both)["unknown_answers"]) == (4, 0)


def test_several_processes_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_prediction, "PORTION", 1)
    alone, together = (evaluate(tmp_path, written([FOLLOWS]), "--json", "--processes", n) for n in "12")
    assert printed(alone) == printed(together)


def test_people_read_measures_with_intervals_and_what_was_counted_as_missed(tmp_path: Path) -> None:
    ended = evaluate(tmp_path, written([FOLLOWS]))
    assert "1 rule of tlogic, 4 queries" in ended.stdout
    assert "hits@3    0.5000  0.1500 to 0.8500" in ended.stdout
    assert "missed          1 queries of these have it from no rule, and count 0" in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("bank_file", "said"),
    [
        (written([FOLLOWS], "amie"), "rules of amie have no times"),
        (b"1\t1\t1.0\tp(X,Y) <= q(X,Y)\n", "rules of anyburl have no times"),
        (b'{"1": []}', "is not an exported rule bank"),
        (b"what is this?", "is not recognised"),
        (written([FOLLOWS], "temporal-simple"), "the bank cannot be applied: a rule of kind ''"),
    ],
)
def test_what_is_no_bank_of_temporal_rules_is_refused(tmp_path: Path, bank_file: bytes, said: str) -> None:
    ended = evaluate(tmp_path, bank_file)
    assert (ended.exit_code, said in ended.stderr) == (Exit.INVALID, True), ended.stderr


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"train": "ann\tvisits\tbob\n"}, "train.tsv: its facts have no times"),
        ({"held_out": "ann\tvisits\tbob\n"}, "test.tsv: its facts have no times"),
        ({"held_out": "ann\tvisits\tbob\t2014-01-01\n"}, "each fact has a date, but a whole number as time in"),
        ({"held_out": ""}, "test.tsv has no facts"),
        ({"train": "ann\tvisits\n"}, "train.tsv, line 1: has 2 columns"),
    ],
)
def test_facts_that_cannot_be_predicted_are_refused(tmp_path: Path, facts: dict[str, str], said: str) -> None:
    ended = evaluate(tmp_path, written([FOLLOWS]), **facts)  # type: ignore[arg-type]
    assert (ended.exit_code, said in ended.stderr) == (Exit.INVALID, True), ended.stderr


def test_too_many_facts_are_refused_before_they_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mathrag.cli.held_out.MOST_FACTS", 2)
    ended = evaluate(tmp_path, written([FOLLOWS]))
    assert (ended.exit_code, "train.tsv: more than 2 lines" in ended.stderr) == (Exit.INVALID, True)
