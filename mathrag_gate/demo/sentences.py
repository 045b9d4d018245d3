"""Write the output of the demo; every sentence follows from the API's figures. All functions are pure."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from shlex import join, quote
from textwrap import fill, wrap
from typing import Any, NamedTuple

from mathrag.formatting import format_accuracy, format_counts
from mathrag.messages import format_count

Json = Mapping[str, Any]

WIDTH = 118
PIPELINES = {
    "closed-book": "no documents",
    "dense": "3 documents closest in meaning",
    "sparse": "3 documents closest in words",
    "hybrid": "both lists merged by rank",
    "mathrag-gate": "merged, reordered by reasoning",
}
"""Documents that the generator reads, by pipeline."""
INTRODUCTION = """\
MathRAG-Gate answers batches of questions with the help of documents, and measures how many answers are right. This
demo tests one idea: reorder the documents that a search finds by the quality of their reasoning, then answer.

The questions are about a made-up world. Its operators, as in "4 quopo 2", have rules that are only in documents. Two
very small models work on it: a judge, which rates documents, and a generator, which answers. There are two sets. In
`orthogonal`, most documents mislead: they break the rule that they state, or give an answer without a reason. In
`clean`, no document misleads. Everything runs on this machine, without a GPU or a network, and takes one to four
minutes."""
NOT_EQUAL = "This does not prove that they are equal"


class World(NamedTuple):
    """The size of a set of questions and documents."""

    questions: int
    documents: int
    misleading: int

    def __str__(self) -> str:
        mislead = f"{self.misleading:,} mislead" if self.misleading else "none misleads"
        return f"{self.documents:,} documents, {mislead}"


def accuracies(worlds: Mapping[str, World], reports: Mapping[str, Mapping[str, Json]]) -> str:
    """Write a table of accuracies, with a row for each pipeline and a column for each set of documents."""
    rows = [
        ("", "", *(f"{name}: {world.questions} questions" for name, world in worlds.items())),
        ("", "it reads", *map(str, worlds.values())),
    ]
    for name, about in PIPELINES.items():
        rows.append((name, about, *(format_accuracy(reports[setting][name]["accuracy"]) for setting in worlds)))
    return "\n".join(f"  {row[0]:<14}{row[1]:<32}{row[2]:<35}{row[3]}".rstrip() for row in rows)


def metric(scores: Mapping[str, Json]) -> str:
    """Write a table of a metric's mean and its control by pipeline, and explain the control."""
    rows = [("", "their own questions", "other questions (the control)")]
    for name, score in scores.items():
        mean, swapped = score["mean"], (score["controls"] or {}).get("swapped")
        own = "-" if mean["value"] is None else f"{mean['value']:.2f}"
        if mean["low"] is not None:
            own += f" ({mean['low']:.2f} to {mean['high']:.2f})"
        rows.append((name, own, "-" if swapped is None else f"{swapped:.2f}"))
    lines = [f"  {name:<14}{own:<26}{control}".rstrip() for name, own, control in rows]
    explanation = (
        "In the metric context_relevance, a third model rates how much each document in a prompt helps with its "
        "question, from 0 (not at all) to 1 (the document answers it). As a control, the model also rates the same "
        "documents for other questions; these ratings should be low."
    )
    failed = sum(score["failed"] for score in scores.values())
    unread = [f"Without a rating, and in no mean: {format_count(failed, 'answer')}."] if failed else []
    return "\n".join([*lines, paragraph(" ".join([explanation, *unread]))])


def gate(reports: Mapping[str, Json]) -> str:
    """Explain r and its threshold, and state the decision in each set; `reports` are the reports of mathrag-gate."""
    threshold = next(iter(reports.values()))["gate"]["tau"]
    explanation = (
        "mathrag-gate first scores some documents twice: by rules, and by the judge. r is the correlation of both "
        f"scores. If r is above the threshold of {threshold:g}, the rules agree with the judge. They then score all "
        "other documents, which costs nothing. Otherwise the judge, a model that must be loaded, scores all documents."
    )
    return "\n".join([paragraph(explanation), *(paragraph(f"{name}: {decision(r)}") for name, r in reports.items())])


def decision(report: Json) -> str:
    """State if the rules or the judge scored the documents, and if the decision was close."""
    found = report["gate"]
    if found["rho"] is None:
        return f"rules and judge could not be compared: {found['reason']}."
    ratings = report["calls_made"].get("judge", 0) + report["calls_reused"].get("judge", 0)
    scorer = "the rules score the rest" if found["strategy"] == "rules" else "the judge scores all documents"
    compared = f"r = {found['rho']:.2f} on {len(found['documents'])} documents"
    sentence = f"{compared}, so {scorer}. The judge gave {ratings:,} ratings."
    low, high = found["low"], found["high"]
    if low is None or high is None or not low <= found["tau"] <= high:
        return sentence
    interval = f"the 95 % interval of r, {low:.2f} to {high:.2f}, contains the threshold"
    return f"{sentence} The decision is close: {interval}."


def conclusion(pair: Json) -> str:
    """State only the conclusion that the exact test supports."""
    if not pair["gained"] + pair["lost"]:
        return f"no conclusion. mathrag-gate and hybrid agree on all {pair['items']} questions. {NOT_EQUAL}."
    p = pair["adjusted"]
    often = "less than one case in a thousand (p < 0.001" if p < 0.001 else f"{100 * p:.1f} % of cases (p = {p:.3f}"
    value, low, high = (f"{100 * pair['difference'][part]:+.1f}" for part in ("value", "low", "high"))
    seen = (
        f"{pair['gained']} questions are right only with mathrag-gate, {pair['lost']} only with hybrid: {value} points "
        f"(95 %: {low} to {high}). If both were equally good, chance would split them at least as unevenly in {often}, "
        "McNemar's exact test)."
    )
    if pair["separable"]:
        return f"reordering by reasoning {'helps' if pair['difference']['value'] > 0 else 'harms'}. {seen}"
    hint = f"; a difference of this size needs about {pair['needed']:,} questions to show" if pair["needed"] else ""
    return f"no conclusion, because these questions show no clear difference. {seen} {NOT_EQUAL}{hint}."


def list_examples(samples: Mapping[str, Sequence[Json]]) -> list[int]:
    """Return the positions of all questions, first those that mathrag-gate answers right and most others wrong."""
    gated = samples["mathrag-gate"]
    wrong = [sum(rows[at]["correct"] is False for rows in samples.values()) for at in range(len(gated))]
    return sorted(range(len(gated)), key=lambda at: -wrong[at] if gated[at]["correct"] else 1)


def is_example(hybrid: Json, gated: Json, relevant: Mapping[str, int]) -> bool:
    """Return True if mathrag-gate is right, with one of the best documents first, and hybrid wrong, with a useless one.

    `relevant` has the grades of the useful documents.
    """
    decided = gated["correct"] and hybrid["correct"] is False
    if not (decided and hybrid["context"] and gated["context"] and relevant):
        return False
    return hybrid["context"][0] not in relevant and relevant.get(gated["context"][0]) == max(relevant.values())


def example(samples: Mapping[str, Json], documents: Mapping[str, Json]) -> str:
    """Show a question, the answer of each pipeline, and the first documents of hybrid and mathrag-gate side by side.

    `documents` has documents by hash; without them, only the question and the answers are shown.
    """
    row = samples["mathrag-gate"]
    lines = [f"  {row['question']}  Right answer: {row['gold']}"]
    if documents:
        half = WIDTH // 2 - 2
        columns = []
        for name, about in (("hybrid", "misleading"), ("mathrag-gate", "right")):
            found = documents[samples[name]["context"][0]]
            title = f"First document for {name} ({about}):"
            columns.append([title, *wrap(found["problem"], half), *wrap(found["text"], half)])
        lines += [f"  {left:<{half}}  {right}".rstrip() for left, right in zip_longest(*columns, fillvalue="")]
    graded = {True: "right", False: "wrong", None: "not graded"}
    answers = (
        f"{name} {'no answer' if each['answer'] is None else each['answer']} ({graded[each['correct']]})"
        for name, each in samples.items()
    )
    return "\n".join([*lines, paragraph(f"Answers: {', '.join(answers)}.")])


def loads(answering: Sequence[Json], measuring: Sequence[Json]) -> str:
    """Count the model loads of the jobs that answered and of those that measured; jobs share loaded models."""
    answers = sum(job["request_counts"]["completed"] for job in answering)
    return (
        f"The {answers:,} answers took {format_count(_count_loads(answering), 'model load')}: judge and generator do "
        "not fit on the device together, so the judge rates all documents first, then the generator answers. "
        f"The metric took {_count_loads(measuring)} more."
    )


def _count_loads(jobs: Sequence[Json]) -> int:
    residencies = {(each["device"], each["epoch"]): each["models"] for job in jobs for each in job["residencies"]}
    return sum(map(len, residencies.values()))


def audits(violations: Mapping[str, Sequence[Any]]) -> str:
    """State the results of the audits."""
    wrong = {name: len(found) for name, found in violations.items() if found}
    if wrong:
        return f"The audit found violations: {format_counts(wrong)}. `mathrag audit JOB` shows them."
    return (
        f"The audit checked the stored data of {len(violations)} jobs against the invariants, and found no violation."
    )


def own_data(url: str, folder: Path, program: Sequence[str], *, elsewhere: bool) -> str:
    """Give the address of the pages, and list commands for the user's own data.

    Args:
        url: address of the stack.
        folder: folder of the demo, which contains the stack's data.
        program: words that start `mathrag` in the user's shell.
        elsewhere: `MATHRAG_URL` names another service in that shell.
    """
    data, mathrag = quote(str(folder / "stack")), join(program)
    return f"""\
The service keeps running. Its pages show all of this:  {url}
Try it with your own texts in a folder `notes` and a table `questions.csv` (columns question and answer):

  {"unset MATHRAG_URL; " if elsewhere else ""}export MATHRAG_DATA_DIR={data}
  {mathrag} corpus create notes --from notes
  {mathrag} dataset create questions --from questions.csv
  {mathrag} job submit --name first --dataset questions --corpus notes --pipeline hybrid --wait

The models of the demo only understand the made-up world. To connect your own model:  {mathrag} model connect
To stop the service (the next demo deletes everything in {folder}):  {mathrag} down --data-dir {data}"""


def paragraph(text: str) -> str:
    """Indent a text and fill its lines to `WIDTH`."""
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
