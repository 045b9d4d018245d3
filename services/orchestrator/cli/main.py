"""The `mathrag` command: every verb is a plain function, registered here."""

import typer

from services.orchestrator.cli import jobs, keys, samples, stack, uploads

app = typer.Typer(
    name="mathrag",
    help="Batches of questions answered with retrieval-augmented generation on one small GPU, measured honestly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(stack.up)
app.command()(stack.down)
app.command()(stack.status)
app.add_typer(uploads.corpus, name="corpus")
app.add_typer(uploads.dataset, name="dataset")
app.add_typer(jobs.job, name="job")
app.add_typer(samples.sample, name="sample")
app.add_typer(keys.key, name="key")
app.command()(samples.audit)

if __name__ == "__main__":
    app()
