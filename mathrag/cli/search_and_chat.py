"""`mathrag search` and `mathrag chat`: one question to a corpus, and one that a pipeline answers."""

from typing import Annotated, Any

import typer

from mathrag.cli import progress
from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, facts, print_json, shortened
from mathrag.cli.parameters import Model, Set, pair, parameters
from mathrag.cli.references import CorpusOption, PipelineOption
from mathrag.client import jobs, questions, texts
from mathrag.client.client import Client
from shared.pages.words import counted, last_line

Question = Annotated[str, typer.Argument(metavar="QUESTION", help="In quotes, so that the shell leaves it as it is.")]


def search(
    question: Question,
    corpus: CorpusOption = None,
    mode: Annotated[str, typer.Option(help="dense, sparse or hybrid.")] = "hybrid",
    k: Annotated[int, typer.Option(help="Documents that are shown.")] = 5,
    enhance: Annotated[bool, typer.Option("--enhance", help="Also search corrected wordings and synonyms.")] = False,
    rerank: Annotated[bool, typer.Option("--rerank", help="Have the reranker put the documents in order.")] = False,
    crag: Annotated[bool, typer.Option("--crag", help="Evaluate what was found.")] = False,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Find the documents of a corpus that fit a question; nothing is stored."""
    with reported(as_json=as_json), Client() as client:
        body = {
            "question": question, "corpus": corpus or _only_corpus(client), "mode": mode, "k": k,
            "enhance": enhance, "rerank": rerank, "crag": crag, "params": parameters(settings or []),
        }  # fmt: skip
        found = client.send(questions.search(body))
        if as_json:
            print_json(found)
        else:
            print_hits(found)


def chat(
    question: Question,
    corpus: CorpusOption = None,
    pipeline: PipelineOption = None,
    settings: Set = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Ask one question, watch it being worked on, and read the answer with its documents."""
    with reported(as_json=as_json), Client() as client:
        body = {
            "question": question, "corpus": corpus, "pipeline": pipeline, "params": parameters(settings or []),
            "models": dict(pair(text, "--model") for text in model or []), "wait_s": 0,
        }  # fmt: skip
        asked = client.send(questions.chat(body))
        if not as_json:
            typer.echo(_announced(asked), err=True)
        ended = progress.watch(client, asked["job"], progress.Silent() if as_json else progress.view())
        answered = client.send(jobs.sample(asked["job"], 0))
        if as_json:
            print_json({"job": asked["job"], "price": asked["price"], "sample": answered})
        else:
            print_answer(answered)
        if ended["state"] != "completed" or answered["outcome"] is None:
            raise typer.Exit(Exit.FINDING)


def _only_corpus(client: Client) -> str:
    return texts.only(client.send(texts.listed("corpora", limit=5)))


def print_hits(found: Any) -> None:
    """The documents, best first, and what was decided on the way."""
    for hit in found["hits"]:
        ranks = ", ".join(f"{name} {hit[f'{name}_rank']}" for name in ("dense", "sparse") if hit[f"{name}_rank"])
        typer.echo(f"{hit['rank']}. {hit['id']}  score {hit['score']:.4f} ({ranks})")
        facts([("problem", shortened(hit["problem"])), ("text", shortened(hit["text"]))])
    if not found["hits"]:
        typer.echo(f"Nothing in corpus {found['corpus']} fits.")
    if found["duplicates"]:
        typer.echo(f"{len(found['duplicates'])} near-duplicates of the question were left out")
    print_decisions(found["decisions"])


def print_answer(sample: Any) -> None:
    """The text, the answer taken from it, and the documents that the generator was shown."""
    outcome = sample["outcome"] or {}
    if sample["text"]:
        typer.echo(sample["text"])
        typer.echo()
    facts(
        [
            ("answer", outcome.get("answer")),
            ("refusal", outcome.get("refusal")),
            ("failure", sample["failure"] and f"{sample['failure']}: {last_line(sample['detail'])}"),
        ]
    )
    for document in sample["documents"].values():
        facts([("document", shortened(" ".join((document["problem"] + " " + document["text"]).split())))])
    print_decisions(outcome.get("trace", {}).get("decisions", ()))


def print_decisions(decisions: Any) -> None:
    """What was decided, and what was left out for which reason."""
    for each in decisions:
        fallback = f" (left out: {each['fallback']})" if each.get("fallback") else ""
        facts([("decision", f"{each['stage']}: {each['action']}{fallback}")])


def _announced(asked: Any) -> str:
    price = asked["price"]
    loads = f", {price['loads']} models to load first" if price["loads"] else ""
    return f"{asked['pipeline']}: {counted(price['calls']) or 'no calls'} at most{loads}"
