"""`mathrag search` and `mathrag chat`: search a corpus for one question, or let a pipeline answer it."""

from typing import Annotated, Any

import typer

from mathrag.cli import progress
from mathrag.cli.output import (
    AsJson,
    Exit,
    Model,
    Set,
    parse_parameters,
    print_facts,
    print_json,
    print_warnings,
    report_errors,
    shorten,
    split_pairs,
)
from mathrag.cli.references import CorpusOption, PipelineOption
from mathrag.client import jobs, texts
from mathrag.client.client import Client
from mathrag.formatting import format_counts, take_last_line
from mathrag.messages import format_count

Question = Annotated[str, typer.Argument(metavar="QUESTION", help="Question, in quotes.")]


def search(
    question: Question,
    corpus: CorpusOption = None,
    mode: Annotated[str, typer.Option(metavar="dense|sparse|hybrid", help="Retrieval mode.")] = "hybrid",
    k: Annotated[int, typer.Option(help="Number of documents to find.")] = 5,
    enhance: Annotated[
        bool, typer.Option("--enhance", help="Also search for corrected spellings and synonyms.")
    ] = False,
    rerank: Annotated[bool, typer.Option("--rerank", help="Reorder the documents with the reranker.")] = False,
    crag: Annotated[bool, typer.Option("--crag", help="Evaluate the documents with corrective RAG.")] = False,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Search a corpus for documents that match a question; nothing is stored."""
    with report_errors(as_json=as_json), Client() as client:
        body = {
            "question": question,
            "corpus": corpus or texts.require_only_corpus(client.send(texts.list_corpora().with_limit(5))),
            "mode": mode, "k": k, "enhance": enhance, "rerank": rerank, "crag": crag,
            "params": parse_parameters(settings or []),
        }  # fmt: skip
        found = client.send(texts.search(body))
        print_json(found) if as_json else print_hits(found)


def chat(
    question: Question,
    corpus: CorpusOption = None,
    pipeline: PipelineOption = None,
    settings: Set = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Ask one question, follow its progress, and print the answer with the documents it is based on."""
    with report_errors(as_json=as_json), Client() as client:
        body = {
            "question": question, "corpus": corpus, "pipeline": pipeline, "params": parse_parameters(settings or []),
            "models": split_pairs(model, "--model"), "wait_s": 0,
        }  # fmt: skip
        reply = client.send(texts.chat(body))
        if not as_json:
            print_warnings(reply)
            price = reply["price"]
            loads = f", {format_count(price['loads'], 'model')} to load first" if price["loads"] else ""
            typer.echo(f"{reply['pipeline']}: {format_counts(price['calls']) or 'no calls'} at most{loads}", err=True)
        ended = progress.watch(client, reply["job"], progress.Silent() if as_json else progress.choose_view())
        answered = client.send(jobs.sample(reply["job"], 0))
        if as_json:
            print_json({"job": reply["job"], "price": reply["price"], "sample": answered})
        else:
            print_answer(answered)
        if ended["state"] != "completed" or answered["outcome"] is None:
            raise typer.Exit(Exit.FINDING)


def print_hits(found: Any) -> None:
    """Print the documents, best first, and the decisions of the search."""
    for hit in found["hits"]:
        ranks = ", ".join(f"{name} {hit[f'{name}_rank']}" for name in ("dense", "sparse") if hit[f"{name}_rank"])
        typer.echo(f"{hit['rank']}. {hit['id']}  score {hit['score']:.4f} ({ranks})")
        print_facts([("problem", shorten(hit["problem"])), ("text", shorten(hit["text"]))])
    if not found["hits"]:
        typer.echo(f"No document in corpus {found['corpus']} matches.")
    if found["duplicates"]:
        typer.echo(f"{len(found['duplicates'])} near-duplicates of the question were left out")
    print_decisions(found["decisions"])


def print_answer(sample: Any) -> None:
    """Print the reply, the answer extracted from it, and the documents in the prompt."""
    outcome = sample["outcome"] or {}
    if sample["text"]:
        typer.echo(sample["text"])
        typer.echo()
    print_facts(
        [
            ("answer", outcome.get("answer")),
            ("refusal", outcome.get("refusal")),
            ("failure", sample["failure"] and f"{sample['failure']}: {take_last_line(sample['detail'])}"),
        ]
    )
    for document in sample["documents"].values():
        print_facts([("document", shorten(" ".join((document["problem"] + " " + document["text"]).split())))])
    print_decisions(outcome.get("trace", {}).get("decisions", ()))


def print_decisions(decisions: Any) -> None:
    """Print each decision, and the reason if an optional stage was left out."""
    for each in decisions:
        fallback = f" (left out: {each['fallback']})" if each.get("fallback") else ""
        print_facts([("decision", f"{each['stage']}: {each['action']}{fallback}")])
