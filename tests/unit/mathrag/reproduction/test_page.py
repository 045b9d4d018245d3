"""The paper's table with one's own figures in it, and what is said about setting both side by side."""

from typing import Any

import pytest

from mathrag.reproduction import paper
from mathrag.reproduction import preset as presets
from mathrag.reproduction.caveats import describe_caveats, describe_rho
from mathrag.reproduction.drawings import draw_figures, list_cells, list_points, list_residencies
from mathrag.reproduction.page import list_differences, make_endings_table, write_page
from mathrag.reproduction.table import HEAD, format_percent, format_spread, make_line, make_table
from shared.statistics.repeats import measure_spread as over_repeats
from tests.unit.reproductions import GATE, PROBLEMS, RESIDENCY, report, results, stage


def cells_of(row: str) -> dict[str, str]:
    return dict(zip(HEAD, (cell.strip() for cell in row.strip("| ").split(" | ")), strict=True))


def said(**jobs: Any) -> str:
    found = results(**jobs)
    return "\n".join(describe_caveats(found.lines, found.jobs, PROBLEMS.documents))


def test_the_papers_figures_are_those_of_its_table() -> None:
    assert [row.accuracy for row in paper.ROWS.values()] == [0.86, 0.85, 0.81, 0.868]
    assert [row.std for row in paper.ROWS.values()] == [0, 0, 0, 0.011]
    assert [row.latency_s for row in paper.ROWS.values()] == [4.49, 4.46, 4.59, 4.53]
    assert (paper.RHO, paper.WEIGHTS) == (0.139, (0.1, 0.9))


def test_the_papers_deviation_fits_a_hundred_questions() -> None:
    fitting = over_repeats([(right, paper.FITTING) for right in (86, 86, 86, 88, 88)])
    assert fitting.mean == pytest.approx(paper.ROWS["gate"].accuracy)
    assert fitting.std == pytest.approx(paper.ROWS["gate"].std, abs=5e-5)


def test_a_line_holds_ours_and_the_papers() -> None:
    lines = make_table(results().lines).splitlines()
    assert cells_of(lines[5]) == {
        "": "gate",
        "accuracy, mean ± std over repeats": "87.00 ± 0.00 %",
        "95 % over questions (Wilson; bootstrap)": "79.0 to 92.2; 79.0 to 92.0",
        "strict grader": "87.0 %",
        "Recall@5": "-",
        "device s a question": "4.1",
        "model loads": "1",
        "model calls made, reused": "100, 0",
        "failed": "0",
        "paper: accuracy": "86.80 ± 1.10 %",
        "paper: Recall@5": "100.0 %",
        "paper: s": "4.53",
    }


def test_seconds_are_those_of_models_alone() -> None:
    stages = {"retrieve": stage(9.0), "judge": stage(100.0), "generate": stage(410.0), "grade": stage(30.0)}
    assert make_line("gate", report(stages=stages)).latency_s == pytest.approx(5.1)
    assert make_line("gate", report(stages={"generate": stage(None)})).latency_s is None


def drawing(*roles: str, **stages: Any) -> dict[str, Any]:
    found = report(stages=stages)
    found["settings"]["drawn"] = list(roles)
    return found


def test_seconds_are_of_one_answer_where_every_repeat_draws_its_own() -> None:
    stages = {"judge": stage(100.0), "generate": {**stage(2050.0), "made": 500}}
    assert make_line("gate", drawing("generate", **stages)).latency_s == pytest.approx(1.0 + 4.1)
    assert make_line("gate", drawing("generate", "judge", **stages)).latency_s == pytest.approx(0.2 + 4.1)


def test_greedy_answers_to_contexts_that_the_judge_changed_are_counted_as_they_were_made() -> None:
    stages = {"judge": stage(500.0), "generate": {**stage(615.0), "made": 140, "reused": 10}}
    assert make_line("gate", drawing("judge", **stages)).latency_s == pytest.approx(1.0 + 4.1)


@pytest.mark.parametrize(
    ("temperature", "drawn", "said"),
    [
        (0.0, [], "share their replies and are one measurement"),
        (0.0, ["judge"], "comes from the judge's temperature, through the context"),
        (0.7, ["generate"], "rated once for all, so the judge causes no variation"),
        (0.7, ["generate", "judge"], "documents rated again in each"),
    ],
)
def test_the_words_about_decoding_say_what_was_drawn_anew(temperature: float, drawn: list[str], said: str) -> None:
    found = drawing(*drawn, generate=stage(1.0))
    found["settings"]["params"]["generate"]["temperature"] = temperature
    (words,) = [
        each
        for each in describe_caveats([make_line("gate", found)], {"gate": found}, 7500)
        if each.startswith("decoding")
    ]
    assert said in words


def test_recall_is_given_only_where_relevance_is_known_and_five_documents_are_shown() -> None:
    known = {"context": {"value": 0.99}}
    assert make_line("dense", report(retrieval=known)).recall == 0.99
    other = report(retrieval=known)
    other["settings"]["params"]["context_size"] = 1
    assert make_line("dense", other).recall is None
    assert "Recall@5: not measured" in said()
    assert "Recall@5" not in said(dense=report(retrieval=known))


def test_a_variant_that_the_paper_has_not_stands_alone() -> None:
    row = cells_of(make_table([make_line("gate-rules", report())]).splitlines()[-1])
    assert [row[key] for key in HEAD if key.startswith("paper")] == ["-", "-", "-"]


def test_what_is_not_known_is_a_dash() -> None:
    nothing = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "graded": 0}
    empty = {"accuracies": [None], "mean": None, "std": None}
    row = make_line("dense", report(accuracy=nothing, strict=nothing, bootstrap=None, repeats=empty))
    assert "| - | 0.0 to 100.0 | - |" in make_table([row])
    assert (format_spread(0.5, None), format_percent(None)) == ("50.00 %", "-")


def test_greedy_repeats_are_said_to_be_one_measurement() -> None:
    assert "greedy, so 5 repeats share their replies" in said()
    sampled = report()
    sampled["settings"]["params"]["generate"]["temperature"] = 0.7
    assert "sampled at temperature 0.7, 5 repeats" in said(dense=sampled)


def test_sizes_are_compared_by_their_intervals() -> None:
    found = said()
    assert "100 here; the paper says 500, its published runs have 100" in found
    assert "77.9 to 91.5 % over 100 questions and 82.7 to 88.8 % over 500 questions" in found


def test_corpus_and_contamination_are_said() -> None:
    assert "7,500 worked solutions, as the paper" in said()
    assert "(16 hits)" in said()


def test_the_gates_finding_stands_beside_the_papers() -> None:
    (found,) = describe_rho(results().jobs)
    assert found == "gate: rho = 0.139 <= tau = 0.45: judge (the paper: rho = 0.139, so the judge)"


def test_differences_are_in_the_comparisons_words() -> None:
    assert list(list_differences(results())) == ["gate against hybrid: not separable at n = 100: +6.0 points"]


def test_endings_stand_side_by_side() -> None:
    shown = make_endings_table({"dense": report(endings={"correct": 3}), "gate": report(endings={"logic": 2})})
    assert shown.splitlines() == [
        "|  | correct | logic |",
        "| --- | --- | --- |",
        "| dense | 3 | 0 |",
        "| gate | 0 | 2 |",
    ]


def test_the_page_names_what_it_was_made_from() -> None:
    found = write_page("paper", presets.load("paper"), PROBLEMS, results(), [])
    assert "7,500 documents of train.jsonl, SHA-256 " + "c" * 64 in found
    assert "generate: qwen2.5-7b-instruct, ollama 0.40.2, digest 845dbda0ea48" in found
    assert "- dense, sparse, hybrid, gate: repeats shared their replies" in found
    assert found.count("repeats shared their replies") == 1
    assert "- a note" in found
    assert found.count("pipeline 77ab") == 4
    assert "## Figures" not in found


def test_figures_are_the_papers_three_to_six() -> None:
    assert [figure.name for figure in draw_figures(results())] == ["memory", "accuracy", "rho-gate"]
    found = write_page("paper", presets.load("paper"), PROBLEMS, results(), list(draw_figures(results())))
    assert "](figures/rho-gate.svg)" in found


def test_a_gate_that_was_told_who_scores_has_no_correlation_to_draw() -> None:
    told = {**GATE, "documents": [], "rule_scores": [], "judge_scores": [], "rho": None, "low": None, "high": None}
    assert [figure.name for figure in draw_figures(results(gate=report(gate=told)))] == ["memory", "accuracy"]


def test_a_residency_is_drawn_once_however_many_jobs_it_answered() -> None:
    unknown = {**RESIDENCY, "epoch": 4, "memory_mib": {}}
    rows = list_residencies({"dense": report(), "gate": report(residencies=[RESIDENCY, unknown])})
    assert [(row.epoch, row.mib) for row in rows] == [(3, 5400.0), (4, None)]


def test_the_papers_accuracy_is_drawn_beside_ours() -> None:
    rows = list_points([make_line("gate", report()), make_line("gate-rules", report())])
    assert [row.published for row in rows] == [0.868, None]


def test_cells_of_the_grid_keep_their_job_and_those_without_one_are_empty() -> None:
    ran = {"point": {"rrf_weight": 0.1, "quality_weight": 0.9}, "job": "j", "result": report(right=50)}
    refused = {"point": {"rrf_weight": 0.0, "quality_weight": 0.0}, "job": None, "result": None}
    full, empty = list_cells({"rows": [ran, refused]})
    assert (full.value, full.job) == (0.5, "j")
    assert (empty.value, empty.n) == (None, 0)
