"""Jobs side by side, as a person reads them."""

from typing import Any

import msgspec

from mathrag.cli.job import list_ending_rows, print_report
from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from tests.unit.commands import Server, mathrag, refuses, says

REPORT = make_example("Report")
EXAMPLE = make_example("Comparison")


def row(output: str, *cells: str) -> str:
    return next(line for line in output.splitlines() if line.split()[: len(cells)] == list(cells))


def test_jobs_and_pairs_are_tables_with_the_verdict_in_words(server: Server) -> None:
    requests = server(says(EXAMPLE))
    ended = mathrag("job", "compare", "gate", "dense", "--baseline", "dense")
    assert ended.exit_code == Exit.DONE, ended.output
    (request,) = requests
    assert request.url.path == "/v1/comparison"
    assert request.url.params.multi_items() == [("job", "gate"), ("job", "dense"), ("baseline", "dense")]
    assert "62.0 % (57.7 to 66.1), 310 of 500" in row(ended.stdout, "gate", "mathrag-gate")
    assert "not separable at n = 500: +0.8 points" in row(ended.stdout, "gate", "dense")
    assert row(ended.stdout, "arithmetic").split() == ["arithmetic", "61", "58"]
    assert "gate (rows) against dense (columns): how the same samples ended" in ended.stdout
    assert row(ended.stdout, "logic", "12").split() == ["logic", "12", "1", "2", "116"]
    assert row(ended.stdout, "arithmetic", "5").split() == ["arithmetic", "5", "-", "53", "-"]


def test_json_is_what_the_api_said(server: Server) -> None:
    server(says(EXAMPLE))
    ended = mathrag("job", "compare", "gate", "dense", "--json")
    assert msgspec.json.decode(ended.stdout) == EXAMPLE


def test_a_refusal_is_shown_with_its_reason(server: Server) -> None:
    server(refuses(409, "conflict", "jobs 'a' and 'b' have no item in common that both have a verdict for"))
    ended = mathrag("job", "compare", "a", "b")
    assert ended.exit_code != Exit.DONE
    assert "no item in common" in ended.output


def test_a_job_without_a_verdict_stands_in_the_table(server: Server) -> None:
    blank: dict[str, Any] = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "graded": 0}
    young = {**EXAMPLE["jobs"][1], "accuracy": blank, "bootstrap": None, "items": 0, "endings": {}}
    pair = {**EXAMPLE["pairs"][0], "items": 0, "effect": None, "words": "nothing to compare"}
    server(says({**EXAMPLE, "jobs": [EXAMPLE["jobs"][0], young], "pairs": [pair], "notes": ["not final"]}))
    ended = mathrag("job", "compare", "gate", "dense")
    assert "nothing was graded" in row(ended.stdout, "gate", "mathrag-gate")
    assert "nothing to compare" in ended.stdout
    assert "note: not final" in ended.stdout


def test_endings_of_either_job_have_a_row() -> None:
    jobs = [{"endings": {"correct": 3}}, {"endings": {"correct": 1, "logic": 2}}, {"endings": {"refused": 1}}]
    assert list(list_ending_rows(jobs)) == [("correct", 3, 1, 0), ("logic", 0, 2, 0), ("refused", 0, 0, 1)]


def test_a_report_of_answers_that_could_not_be_read_warns_before_the_accuracy(capsys) -> None:  # type: ignore[no-untyped-def]
    print_report(REPORT)
    assert "warning" not in capsys.readouterr().out
    wrong = {**REPORT["accuracy"], "value": 0.0, "correct": 0}
    print_report({**REPORT, "extraction": {"missing": 500}, "accuracy": wrong})
    out = capsys.readouterr().out
    said = "In 500 of 500 answers no final answer could be found, so 0.0 % says nothing about the system"
    assert said in row(out, "warning")
    assert out.index(said) < out.index("  accuracy ")


def test_a_report_shows_the_spread_of_repeats_apart_from_the_intervals(capsys) -> None:  # type: ignore[no-untyped-def]
    print_report(REPORT)
    assert "  repeats " not in (alone := capsys.readouterr().out)
    assert "56.6 to 65.2 [over items, 95 %]" in row(alone, "bootstrap")
    print_report({**REPORT, "repeats": {"accuracies": [0.86, 0.88, None], "mean": 0.87, "std": 0.01414}})
    assert "87.00 %, std 1.41 [by repeat 86.0, 88.0, -; not an interval]" in row(capsys.readouterr().out, "repeats")


def test_another_measure_is_asked_for_and_has_a_column_beside_accuracy(server: Server) -> None:
    lacking = {**EXAMPLE["jobs"][1], "measured": {"value": None, "low": None, "high": None, "n": 0}}
    found = {**EXAMPLE, "measure": "score", "jobs": [EXAMPLE["jobs"][0], lacking]}
    requests = server(says(found))
    ended = mathrag("job", "compare", "gate", "dense", "--measure", "score")
    assert requests[0].url.params["measure"] == "score"
    assert "SCORE (95 %)" in row(ended.stdout, "NAME")
    assert "61.2 % (56.9 to 65.4), 500 items" in row(ended.stdout, "dense", "dense")
    assert "not measured" in row(ended.stdout, "gate", "mathrag-gate")
    assert "d = +0.02" in row(ended.stdout, "gate", "dense")
