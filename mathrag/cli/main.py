"""The `mathrag` command: every verb is a plain function, registered here."""

import typer

from mathrag.cli import command_groups as nouns
from mathrag.cli import completion, config, demo, doctor, gpu, mcp, plan, purge, reproduce, retrieval, stack, version
from mathrag.cli import experiment as experiments
from mathrag.cli import grade as grading
from mathrag.cli import job as jobs
from mathrag.cli import key as keys
from mathrag.cli import pipeline_and_model as catalog
from mathrag.cli import report as bundle
from mathrag.cli import sample as samples
from mathrag.cli import search_and_chat as asking
from mathrag.cli import upload as uploads

app = typer.Typer(
    name="mathrag",
    help="Batches of questions answered with retrieval-augmented generation on one small GPU, measured honestly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(version.options)
app.command()(stack.up)
app.command()(stack.down)
app.command()(stack.status)
app.command()(doctor.doctor)
app.command()(demo.demo)
for noun, name in (
    (uploads.corpus, "corpus"),
    (uploads.dataset, "dataset"),
    (jobs.job, "job"),
    (experiments.experiment, "experiment"),
    (samples.sample, "sample"),
    (catalog.pipeline, "pipeline"),
    (catalog.model, "model"),
    (gpu.gpu, "gpu"),
    (bundle.report, "report"),
):
    nouns.add(app, noun, name)
app.command(cls=nouns.ApiCommand)(samples.audit)
app.command(cls=nouns.ApiCommand)(plan.plan)
app.command(cls=nouns.ApiCommand)(asking.search)
app.command(cls=nouns.ApiCommand)(asking.chat)
app.add_typer(keys.key, name="key", cls=nouns.Noun)
app.add_typer(config.config, name="config", cls=nouns.Noun)
app.add_typer(reproduce.reproduce, name="reproduce")
app.add_typer(retrieval.retrieval, name="retrieval", cls=nouns.Noun)
app.command()(grading.grade)
app.command()(mcp.mcp)
app.command()(purge.purge)
app.command()(completion.completion)

if __name__ == "__main__":
    app()
