"""The `mathrag` command: every verb is a plain function, listed here and imported when it is called."""

import gc

import typer

from mathrag.cli import version
from mathrag.cli.command_groups import Commands, Entry, PlainCommand

# What is imported stays: looking for garbage among it costs 5 % of a command.
gc.set_threshold(100_000)
ENTRIES = (
    Entry("up", "up", "Start PostgreSQL, Redis and all services, and keep them running.", PlainCommand),
    Entry(
        "open",
        "open",
        "Open the pages in a browser; starts the stack where it does not run, and prints the address.",
        PlainCommand,
    ),
    Entry("down", "stack", "Stop what `mathrag up` started; all data stay.", PlainCommand),
    Entry(
        "status",
        "stack",
        "What runs, where, and how often it was restarted; exits with 1 when nothing runs.",
        PlainCommand,
    ),
    Entry(
        "doctor",
        "doctor",
        "Check everything that a job needs; exits with 1 when something is wrong, and says how to mend it.",
        PlainCommand,
    ),
    Entry(
        "demo",
        "demo",
        "Start everything, answer 300 questions in five ways, and explain what came out; one to four minutes.",
        PlainCommand,
    ),
    Entry("audit", "sample", "Check a job's rows against the invariants; exits with 1 when one is violated."),
    Entry(
        "plan",
        "plan",
        "Plan what is left of a job, a job that is not submitted, or models and GPUs that are not there yet.",
    ),
    Entry("search", "search_and_chat", "Find the documents of a corpus that fit a question; nothing is stored."),
    Entry(
        "chat", "search_and_chat", "Ask one question, watch it being worked on, and read the answer with its documents."
    ),
    Entry(
        "grade",
        "grade",
        "Grade answers in a file, in its order; no service is needed. With --json, one object a line.",
        PlainCommand,
    ),
    Entry(
        "mcp",
        "mcp",
        "Serve an assistant over standard input and output, as MCP clients want it; docs/mcp.md has their snippet.",
        PlainCommand,
    ),
    Entry("purge", "purge", "Delete ended jobs for good, and the calls that no job needs any more.", PlainCommand),
    Entry(
        "completion",
        "completion",
        "Print the completion script of a shell; put it where the shell reads it at its start.",
        PlainCommand,
    ),
    Entry("corpus", "corpus", "What is searched."),
    Entry("dataset", "dataset", "What is asked."),
    Entry("graph", "graph", "Knowledge graphs: facts, also searched as a corpus."),
    Entry("rules", "rules", "Rule banks, mined from graphs."),
    Entry("job", "job", "Runs of a pipeline over a dataset."),
    Entry("experiment", "experiment", "Grids of jobs that are compared."),
    Entry("sample", "sample", "Single answers, with all they were made from."),
    Entry("label", "label", "Labels by people, held against the judge and the grader."),
    Entry("pipeline", "pipeline_and_model", "Pipelines that jobs may name."),
    Entry("model", "pipeline_and_model", "Models that jobs may name."),
    Entry("gpu", "gpu", "Devices: what they hold, why, and whether they may."),
    Entry("report", "report", "Reports that open without a server."),
    Entry("key", "key", "API keys: create, list, rotate, revoke.", PlainCommand),
    Entry(
        "config",
        "config",
        "Settings: what may be set, what is wrong, what holds, what is changed while all runs.",
        PlainCommand,
    ),
    Entry("reproduce", "reproduce", "The paper's experiment with your own models.", PlainCommand),
    Entry("retrieval", "retrieval", "How well documents are found, without a model or a running stack.", PlainCommand),
)


class Mathrag(Commands):
    """All of them."""

    entries = ENTRIES


app = typer.Typer(
    name="mathrag",
    help="Batches of questions answered with retrieval-augmented generation on one small GPU, measured honestly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=Mathrag,
)
app.callback()(version.options)

if __name__ == "__main__":
    app()
