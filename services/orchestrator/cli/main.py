"""The `mathrag` command: every verb is a plain function, registered here."""

import typer

from services.orchestrator.cli import stack

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

if __name__ == "__main__":
    app()
