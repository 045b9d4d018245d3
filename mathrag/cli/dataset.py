"""`mathrag dataset`: upload, draw and generate datasets, and write training data from them."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli import uploads
from mathrag.cli.api import list_and_print, save, send_and_print
from mathrag.cli.command_groups import LocalCommand, Mutation
from mathrag.cli.job_check import describe_failed_job
from mathrag.cli.output import AsJson, DataDir, Force, Yes, print_facts, print_json, report_errors
from mathrag.cli.progress import Silent, choose_upload_view, choose_view, watch
from mathrag.cli.references import Dataset
from mathrag.cli.uploads import (
    ColumnOption,
    Delimiter,
    EntryLimit,
    FormatOption,
    From,
    Name,
    OnErrorOption,
    ReaderOption,
    SkipEmpty,
    Splits,
    report,
    send,
    split_names,
    upload,
    upload_for_reader,
)
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json
from mathrag.client.uploads import Sources
from mathrag.installation import import_server
from mathrag.messages import format_count
from mathrag.reading import graph_paths, paths
from mathrag.reading.columns import ITEMS, Columns
from mathrag.reading.lines import OnError
from mathrag.reading.rows import Format

dataset = typer.Typer(no_args_is_help=True)

Split = Annotated[str, typer.Option("--split", help="Split to read, if PATH is a folder with splits.")]
Grader = Annotated[
    str | None,
    typer.Option(
        help="Grader of the answers: math, math-dataset, last-number, exact, text, contains, f1, regex, choice, set or "
        "rubric."
    ),
]


@dataset.command("create")
def create(
    name: Name,
    source: From,
    split: Split = "test",
    grader: Grader = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    column: ColumnOption = None,
    skip_empty: SkipEmpty = False,
    on_error: OnErrorOption = OnError.REJECT,
    reader: ReaderOption = None,
    as_json: AsJson = False,
) -> None:
    """Upload questions. Uploading the same questions again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        Columns(ITEMS, column or ())
        declared: dict[str, Any] = {"grader": grader or None, "column": column or None}
        if reader is not None:
            made = upload_for_reader(client, "datasets", name, source, reader, on_error=on_error.value, **declared)
        else:
            rows = paths.dataset_lines(source, split=split, format=format, delimiter=delimiter, pairs=column or ())
            sources = Sources(rows, skip_empty=skip_empty, on_error=on_error)
            made = upload(
                client, "datasets", name, sources, choose_upload_view("items", "storing", as_json=as_json), **declared
            )
        several = made["alternatives"]
        alternatives = f" ({several} with several expected answers, each of which is right)" if several else ""
        message = f"dataset {name}: {format_count(made['items'], 'item')}{alternatives}"
        submit = f"mathrag job submit --name N --dataset {name} --corpus C --pipeline hybrid --wait"
        report(made, message, submit, as_json)


@dataset.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List all datasets, newest first."""

    def make_row(found: Json) -> tuple[object, ...]:
        return found["name"], found["items"], found["grader"] or "math", found["created_at"][:19]

    list_and_print(texts.list_datasets(), ("NAME", "ITEMS", "GRADER", "CREATED"), make_row, as_json)


@dataset.command()
def show(name: Dataset, as_json: AsJson = False) -> None:
    """Show a dataset: number of items and content hash."""
    uploads.show(texts.get_dataset(name), f"mathrag dataset preview {name}", as_json)


@dataset.command()
def preview(name: Dataset, limit: EntryLimit = 5, as_json: AsJson = False) -> None:
    """Show the first questions of a dataset, with their expected answers."""
    uploads.preview(texts.items(name), ("question", "gold", "subject", "level", "relation"), limit, as_json)


@dataset.command(cls=LocalCommand)
def delete(name: Dataset, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a dataset that no job uses (requires the database owner)."""
    with report_errors(as_json=as_json):
        import_server("mathrag_gate.cli.purge").delete("dataset", name, data_dir, yes=yes, as_json=as_json)


@dataset.command(cls=Mutation)
def draw(
    name: Dataset,
    drawn: Annotated[str, typer.Option("--to", metavar="DATASET", help="Name of the new dataset.")],
    size: Annotated[int, typer.Option(min=1, help="Number of items.")],
    rest: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Name of a second new dataset, with all other items (default: none)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw items at random into a new dataset. Repeating the command changes nothing."""

    def print_drawn(made: Json) -> None:
        for each in filter(None, (made["drawn"], made["rest"])):
            typer.echo(f"dataset {each['name']}: {format_count(each['items'], 'item')}")
        typer.echo(f"  next: mathrag dataset preview {drawn}")

    send_and_print(texts.draw(name, drawn, size, seed=seed, rest=rest), print_drawn, as_json)


GraphOption = Annotated[str, typer.Option("--graph", help="Graph that the held-out facts come from.")]
Facts = Annotated[
    Path,
    typer.Option(
        "--facts", metavar="PATH", help="File or folder of held-out facts, in a format of `mathrag graph create`."
    ),
]
LeadingRules = Annotated[str | None, typer.Option(metavar="BANK", help="Rule bank whose rules lead to the answers.")]
DrawLimit = Annotated[int | None, typer.Option(min=1, help="Number of questions to draw (default: all).")]
DrawingSeed = Annotated[int, typer.Option(min=0, help="Random seed.")]
SideOption = Annotated[texts.Side, typer.Option("--side", help="Entity of a fact that the question asks for.")]
Templates = Annotated[
    Path | None,
    typer.Option(help="File with tab-separated lines: relation, question for the object, question for the subject."),
]
GraphGrader = Annotated[
    str,
    typer.Option(
        help="Grader of the answers: text, exact, contains or f1 (any answer is right), or set (all are required)."
    ),
]
Unanswered = Annotated[bool, typer.Option("--unanswered", help="Leave out questions that the graph itself answers.")]
DESCRIPTIONS = {
    "repeated": "facts are repeated",
    "known": "facts are already in the graph",
    "unknown_relation": "facts have a relation that the graph does not have",
    "unknown_entity": "questions are about an entity that the graph does not have",
    "many_answers": "questions have more than 1,000 answers",
    "answered": "questions have an answer in the graph itself",
    "long": "questions are too long",
}


@dataset.command("from-graph")
def from_graph(
    name: Name,
    graph: GraphOption,
    source: Facts,
    split: Splits = ["test"],  # noqa: B006 - typer copies it
    rules: LeadingRules = None,
    limit: DrawLimit = None,
    seed: DrawingSeed = 0,
    side: SideOption = "both",
    templates: Templates = None,
    grader: GraphGrader = "text",
    unanswered: Unanswered = False,
    as_json: AsJson = False,
) -> None:
    """Make a dataset of questions from held-out facts, as RuleQA does. Repeating the command changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        rows = graph_paths.fact_lines(source, split_names(split))
        sources = Sources(chain(graph_paths.template_lines(templates) if templates else (), rows))
        request = texts.from_graph(
            name, graph, sources, rules=rules, limit=limit, seed=seed, side=side, grader=grader,
            unanswered=unanswered or None,
        )  # fmt: skip
        made = send(client, request, sources)
        if as_json:
            print_json(made)
        else:
            counts = made["counts"]
            typer.echo(f"dataset {made['name']}: {made['items']} of {counts['available']} questions")
            print_facts(
                (name, f"{count} {what}".strip())
                for name, count, what in (
                    ("answers", counts["answers"], ""),
                    ("graph", counts["answered_by_graph"], "questions have an answer in the graph itself"),
                    (
                        "unnamed",
                        counts["unnamed_answers"],
                        "questions only have answers that the graph has no name for",
                    ),
                    ("not later", counts["not_after_graph"], "questions are about times up to the graph's last fact"),
                    ("rules", counts["with_leads"], "questions have an answer that a rule leads to"),
                    ("documents", counts["with_documents"], "questions have gold documents"),
                    *(("left out", count, DESCRIPTIONS[reason]) for reason, count in counts["left_out"].items()),
                )
                if count
            )
            pipeline = f"rulerag --set rules={rules}" if rules else "hybrid"
            job = f"--name N --dataset {made['name']} --corpus {graph} --pipeline {pipeline}"
            typer.echo(f"  next: mathrag job submit {job} --wait")


Size = Annotated[int, typer.Option(min=1, help="Maximum number of questions.")]
Candidates = Annotated[
    int | None, typer.Option(min=1, help="Number of questions to write; some fail the checks (default: twice --size).")
]
Hops = Annotated[
    str, typer.Option(metavar="1|2|1,2", help="Number of passages that a question needs; 1,2 mixes both kinds.")
]
PassageSeed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Styles = Annotated[
    Path | None,
    typer.Option(help="File with instructions for wording the questions, one per line; they are used in turn."),
]
AnswerGrader = Annotated[str, typer.Option(help="Grader of the answers.")]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge", metavar="MODEL", help="Model that writes and checks the questions."),
]


@dataset.command(cls=Mutation)
def generate(
    name: Name,
    corpus: Annotated[str, typer.Option(help="Corpus whose passages the questions are about.")],
    size: Size = 100,
    candidates: Candidates = None,
    hops: Hops = "1",
    seed: PassageSeed = 0,
    styles: Styles = None,
    grader: AnswerGrader = "contains",
    judge: JudgeModel = None,
    as_json: AsJson = False,
) -> None:
    """Have the judge model write and check questions about a corpus; the questions that pass become a dataset.

    The command waits for the job that writes the questions. If you interrupt it, the job continues; run the same
    command again to wait for it.
    """
    with report_errors(as_json=as_json), Client() as client:
        request = texts.generate(
            name, corpus, size=size, candidates=candidates, hops=_split_hops(hops), seed=seed,
            styles=_read_styles(styles), grader=grader, judge=judge,
        )  # fmt: skip
        made = client.send(request)
        while made["state"] == "writing":
            if not as_json:
                typer.echo(f"writing {format_count(made['candidates'], 'question')}; Ctrl+C leaves the job running")
            ended = watch(client, made["job"], Silent() if as_json else choose_view())
            if ended["state"] != "completed":
                hint = "run the same command again: it keeps the questions that are done"
                raise Failed("conflict", describe_failed_job(ended), hint=hint)
            made = client.send(request)
        if as_json:
            print_json(made)
            return
        typer.echo(f"dataset {made['name']}: {made['items']} of {made['candidates']} questions")
        facts = (
            ("guessable", made["guessable"], "which the judge model answered without a document"),
            ("elsewhere", made["found_elsewhere"], "whose answer is also in other documents"),
            ("spare", made["spare"], "which passed every check but exceed --size"),
            ("failed", made["failed"], "whose passages were too long for the model, or whose calls failed"),
        )
        print_facts((about, f"{count}, {what}") for about, count, what in facts if count)
        left_out = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in made["left_out"].items())
        print_facts([("left out", left_out or "none")])
        print_facts(
            [("overlap", f"{made['overlap']:.0%} of a question's words also occur in its quotation, on average")]
        )
        if made["items"] < size:
            typer.echo(
                f"  fewer than {size}: use another name and more --candidates; the questions written so far are reused"
            )
        typer.echo(f"  next: mathrag dataset preview {name}")
        typer.echo(f"  next: mathrag job submit --name N --dataset {name} --corpus {corpus} --pipeline hybrid --wait")


def _split_hops(hops: str) -> list[int]:
    if hops not in ("1", "2", "1,2", "2,1"):
        raise Failed("usage", f"--hops {hops}: the number of passages must be 1 or 2", hint="use 1, 2, or 1,2 for both")
    return sorted(map(int, hops.split(",")))


def _read_styles(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise Failed("usage", f"--styles {path} cannot be read: {error}", hint="name a text file in UTF-8") from error
    return [line.strip() for line in lines if line.strip()]


TrainingRules = Annotated[str, typer.Option(metavar="BANK", help="Rule bank that the dataset was made with.")]
As = Annotated[
    texts.TrainingForm,
    typer.Option(
        "--as",
        help="Form of a line: pairs or triplets train retrievers; instructions or messages (TRL) train generators.",
    ),
]
Out = Annotated[Path, typer.Option(help="File to write.")]
TrainingSeed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Graph = Annotated[str | None, typer.Option(help="Graph that the rules were mined from, if the bank was imported.")]
Cot = Annotated[bool, typer.Option("--cot", help="With --as messages: begin the reply with the rule and the document.")]


@dataset.command("training-data")
def training_data(
    name: Dataset,
    rules: TrainingRules,
    out: Out,
    form: As = "pairs",
    limit: DrawLimit = None,
    seed: TrainingSeed = 0,
    graph: Graph = None,
    cot: Cot = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write training data as JSON lines, from the questions that rules lead to."""
    with report_errors(as_json=as_json), Client() as client:
        if cot and form != "messages":
            raise Failed(
                "usage",
                f"--cot needs replies, which --as {form} does not write",
                hint="use --as messages, or remove --cot",
            )
        request = texts.training_data(name, rules, form, limit=limit, seed=seed, graph=graph, cot=cot)
        if not save(client, request, out, force=force):
            return
        with out.open("rb") as file:
            count = sum(1 for _ in file)
        if as_json:
            print_json({"dataset": name, "file": str(out), "as": form, "lines": count})
        else:
            typer.echo(f"wrote {count} {form} to {out}")
