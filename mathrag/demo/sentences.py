"""Write the demonstration's output; every sentence follows from figures of the API. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from shared.pages.formatting import format_counts

Json = Mapping[str, Any]

WIDTH = 116
PIPELINES = {
    "closed-book": "the model alone, without documents",
    "dense": "the 3 documents closest in meaning",
    "sparse": "the 3 documents closest in words (BM25)",
    "hybrid": "both lists merged by rank, the first 3 of them",
    "mathrag-gate": "the merged list, reordered by how well each document reasons, the first 3 of them",
}
"""The documents that the generator reads, by pipeline."""
INTRODUCTION = """\
MathRAG-Gate answers batches of questions with the help of documents, on a device that holds one model at a time.
Here two very small models (a million parameters each), a judge of documents and a generator of answers, work in a
made-up world: operators such as "4 quopo 2", whose rules stand in documents only. Some documents are wrong.

The idea that is tried: reorder the documents that were found by how well they reason, before the question is
answered. A gate decides who scores them: rules, which cost nothing, where they agree with the judge; else the judge,
which is a model and has to be loaded.

All of it runs on this machine, without a GPU or a network. It takes one to four minutes."""
READING = (
    "Accuracy is the share of questions answered right. With other questions of the same kind it could lie anywhere in "
    "its 95 % interval."
)
NOT_EQUAL = "That is no proof that they are equal"


def world(name: str, documents: int, misleading: int, questions: int) -> str:
    """Describe one set of documents."""
    bad = f"{misleading:,} of which mislead (wrong, or an answer without a reason)"
    sizes = f"{questions:,} questions, {documents:,} documents"
    return f"  {name:<12}{sizes}, {bad if misleading else 'none of which misleads'}"


def pipelines() -> str:
    """List what the generator reads in each pipeline."""
    return "\n".join(f"  {name:<14}{about}" for name, about in PIPELINES.items())


def results(about: str, reports: Mapping[str, Json], pair: Json) -> str:
    """Write the results on one set of documents: accuracies, the gate's decision, and mathrag-gate against hybrid."""
    sentences = [gate(reports["mathrag-gate"]), conclusion(pair)]
    return "\n".join([f"\n{about.strip()}", *_accuracies(reports), *map(paragraph, sentences)])


def _accuracies(reports: Mapping[str, Json]) -> Iterator[str]:
    yield f"  {'':<14}{'right':<14}{'accuracy':<12}95 % interval"
    for name, report in reports.items():
        found = report["accuracy"]
        if found["value"] is None:
            yield f"  {name:<14}nothing was graded"
            continue
        value, low, high = (f"{100 * found[part]:.1f}" for part in ("value", "low", "high"))
        right = f"{found['correct']} of {found['graded']}"
        yield f"  {name:<14}{right:<14}{value + ' %':<12}{low} to {high} %"


def gate(report: Json) -> str:
    """Tell whether rules or the judge scored the documents, and why."""
    found = report["gate"]
    if found["rho"] is None:
        return f"Gate: it could not compare rules and judge: {found['reason']}."
    rating_count = report["calls_made"].get("judge", 0) + report["calls_reused"].get("judge", 0)
    both = f"Gate: scores of {len(found['documents'])} documents by rules and by the judge were compared (correlation"
    sentence = f"{both} r = {found['rho']:.2f}, threshold {found['tau']:g})."
    if found["strategy"] == "rules":
        sentence += " The rules agree with the judge, so rules score the rest: the judge was asked for "
        sentence += f"{rating_count:,} ratings only."
    else:
        sentence += (
            f" Rules and judge agree too little, so the judge scores all that was found: {rating_count:,} ratings."
        )
    low, high = found["low"], found["high"]
    if low is None or high is None or not low <= found["tau"] <= high:
        close_decision = ""
    else:
        interval = f"the 95 % interval of r, {low:.2f} to {high:.2f}, holds the threshold"
        close_decision = f" This was a close decision: {interval}, so other documents could have turned it."
    return sentence + close_decision


def conclusion(pair: Json) -> str:
    """Conclude only what the exact test supports."""
    if not pair["gained"] + pair["lost"]:
        return f"Conclusion: none. mathrag-gate and hybrid agree on all {pair['items']} questions. {NOT_EQUAL}."
    p = pair["adjusted"]
    often = (
        "in less than one case in a thousand (p < 0.001)" if p < 0.001 else f"in {100 * p:.1f} % of cases (p = {p:.3f})"
    )
    seen = (
        f"{pair['gained']} questions are right with mathrag-gate only, {pair['lost']} with hybrid only: {points(pair)}."
        f" If both were equally good, chance would split them at least as unevenly {often}; this is McNemar's "
        "exact test."
    )
    if pair["separable"]:
        return f"Conclusion: reordering by reasoning {_verdict(pair)} here. {seen}"
    hint = f"; to tell such a difference apart takes about {pair['needed']:,} questions" if pair["needed"] else ""
    return f"Conclusion: none; these questions do not tell the two apart. {seen} {NOT_EQUAL}{hint}."


def points(pair: Json) -> str:
    """Show the difference in points with its interval."""
    value, low, high = (f"{100 * pair['difference'][part]:+.1f}" for part in ("value", "low", "high"))
    return f"{value} points (95 %: {low} to {high})"


def _verdict(pair: Json) -> str:
    return "helps" if pair["difference"]["value"] > 0 else "does harm"


def question(rows: Mapping[str, Sequence[Json]]) -> tuple[int, str]:
    """Return index and text of a question that mathrag-gate answers right and most others wrong, else the first."""
    gated = rows["mathrag-gate"]
    wrong = [sum(samples[index]["correct"] is False for samples in rows.values()) for index in range(len(gated))]
    at = max(range(len(gated)), key=lambda index: wrong[index] if gated[index]["correct"] else -1)
    row = gated[at]
    lines = [f"  question {row['index']}:  {row['question']}", f"  right answer:  {row['gold']}"]
    for name, samples in rows.items():
        answer = samples[at]["answer"]
        graded = {True: "right", False: "wrong", None: "not graded"}[samples[at]["correct"]]
        lines.append(f"    {name:<14}{'no answer' if answer is None else answer:<12}{graded}")
    return row["index"], "\n".join(lines)


def loads(jobs: Sequence[Json], together: Json, alone: Sequence[Json]) -> str:
    """Show counted loads: of all jobs so far, and of a few questions in one job and one by one."""
    samples = sum(job["request_counts"]["completed"] for job in jobs)
    epochs = {(each["device"], each["epoch"]): len(each["models"]) for job in jobs for each in job["residencies"]}
    one_by_one = sum(job["model_loads"] for job in alone)
    seconds = sum(job["seconds"] for job in alone)
    rows = [
        (f"all of the above, {samples:,} answers", _count_loads(sum(epochs.values()))),
        (f"{len(alone)} questions in one job", f"{_count_loads(together['model_loads'])}, {together['seconds']:.1f} s"),
        ("the same, one at a time", f"{_count_loads(one_by_one)}, {seconds:.1f} s"),
    ]
    about = (
        "Judge and generator do not fit on the device together. So all documents are judged first and all answers are "
        "generated afterwards, which was counted here:"
    )
    saved = one_by_one - together["model_loads"]
    saving = f"Working in stages saved {saved} of {_count_loads(one_by_one)}."
    conclusion = saving if saved > 0 else "Stages saved no load here."
    return "\n".join([paragraph(about), *(f"    {what:<38}{count}" for what, count in rows), paragraph(conclusion)])


def _count_loads(number: int) -> str:
    return f"{number} model load{'' if number == 1 else 's'}"


def audits(violations: Mapping[str, Sequence[Any]]) -> str:
    """Tell what the audits found."""
    wrong = {name: len(found) for name, found in violations.items() if found}
    if wrong:
        return f"  The audit found violations: {format_counts(wrong)}. `mathrag audit JOB` shows them."
    checked = f"  `mathrag audit` checked what is stored of {len(violations)} jobs against its invariants"
    return f"{checked}: nothing is wrong."


def summary(pairs: Mapping[str, Json]) -> str:
    """Write the conclusion of each setting."""
    nothing = "no difference between mathrag-gate and hybrid can be told from chance"
    found = {
        setting: f"reordering by reasoning {_verdict(pair)}, {points(pair)}" if pair["separable"] else nothing
        for setting, pair in pairs.items()
    }
    return "\n".join(paragraph(f"{setting}: {conclusion}.") for setting, conclusion in found.items())


def next_steps(data_dir: Path, setting: str, index: int) -> str:
    """List commands to go on with."""
    gated, hybrid = f"{setting}-mathrag-gate", f"{setting}-hybrid"
    return f"""\
  export MATHRAG_DATA_DIR={data_dir}
  mathrag up --detach                        start it again: everything above is still there
  mathrag sample show {gated} {index}
                                             an answer, with the documents and the scores that it was made from
  mathrag job compare {gated} {hybrid} --baseline {hybrid}
  mathrag job submit --name again --dataset {setting} --corpus {setting} --pipeline mathrag-gate \\
      --set context_size=3 --set generate.max_tokens=96 --wait
                                             the same job again: no model is asked twice
  mathrag down
In the repository:
  README.md                                  your own questions, documents and models
  docs/reference/reproduction.md             six such settings, five worlds each, and where reordering does harm"""


def paragraph(text: str) -> str:
    """Indent a text and fill its lines to `WIDTH`."""
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
