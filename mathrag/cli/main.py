"""The `mathrag` command: its commands are listed here, and imported when they are called."""

import typer

from mathrag.cli import version
from mathrag.cli.command_groups import CommandEntry, Commands, Mutation, PlainCommand
from mathrag.installation import SERVER

EMBEDDED = f"{SERVER}[embedded]"
"""The server with PostgreSQL and Redis, which starts a stack on this machine."""
PANELS: dict[str, tuple[CommandEntry, ...]] = {
    "Stack": (
        CommandEntry("up", "Start PostgreSQL, Redis and all services, and keep them running.", PlainCommand, EMBEDDED),
        CommandEntry(
            "open",
            "Open the web pages in a browser, and print their address; the stack is started if it is not running.",
            PlainCommand,
            EMBEDDED,
            module="up",
        ),
        CommandEntry(
            "down",
            "Stop the stack that `mathrag up` started; its data are kept.",
            PlainCommand,
            needs=SERVER,
            module="stack",
        ),
        CommandEntry(
            "scale", "Change the number of workers while the stack runs.", PlainCommand, needs=SERVER, module="stack"
        ),
        CommandEntry(
            "status",
            "Show the processes of the stack, their ports and restarts; exits with 1 when nothing runs.",
            PlainCommand,
            needs=SERVER,
            module="stack",
        ),
        CommandEntry(
            "doctor",
            "Check everything that a job needs, and suggest a fix for each problem; exits with 1 if there is one.",
            PlainCommand,
        ),
        CommandEntry(
            "demo",
            "Start a stack, answer 300 questions with five pipelines, and explain the results (1 to 4 minutes).",
            PlainCommand,
            EMBEDDED,
        ),
    ),
    "Data": (
        CommandEntry("corpus", "Upload, index, inspect and delete corpora: the documents that jobs search."),
        CommandEntry("dataset", "Upload, inspect and delete datasets: the questions that jobs answer."),
        CommandEntry("graph", "Upload, inspect and delete knowledge graphs; each is also a corpus."),
        CommandEntry("rules", "Mine rules from graphs; import and export rule banks."),
        CommandEntry(
            "search",
            "Search a corpus for documents that match a question; nothing is stored.",
            module="search_and_chat",
        ),
    ),
    "Jobs": (
        CommandEntry("job", "Submit jobs, follow them and read their results; a job runs a pipeline over a dataset."),
        CommandEntry("experiment", "Run grids of jobs from a YAML file, and compare them."),
        CommandEntry(
            "pilot", "Try several pipelines on a few questions, and recommend one.", Mutation, module="experiment"
        ),
        CommandEntry(
            "plan", "Estimate model loads, time and memory of a job, or of models and GPUs that you do not have yet."
        ),
        CommandEntry(
            "chat",
            "Ask one question, follow its progress, and print the answer with the documents it is based on.",
            module="search_and_chat",
        ),
    ),
    "Results": (
        CommandEntry("sample", "Inspect single answers with everything they are based on."),
        CommandEntry(
            "audit",
            "Check that a job's stored rows are consistent with each other; exits with 1 if they are not.",
            module="sample",
        ),
        CommandEntry("label", "Collect human labels, and measure their agreement with the judge or grader."),
        CommandEntry("report", "Write reports that open in a browser without a server.", needs=SERVER),
        CommandEntry(
            "grade",
            "Grade the answers in a file, without a running stack; --json prints one object per line, in file order.",
            PlainCommand,
            needs=SERVER,
        ),
        CommandEntry(
            "retrieval",
            "Measure and tune document retrieval, without models or a running stack.",
            PlainCommand,
            needs=SERVER,
        ),
        CommandEntry(
            "reproduce",
            "Repeat the paper's experiment with your own models, or grade its published answers.",
            PlainCommand,
            EMBEDDED,
        ),
    ),
    "Models and plug-ins": (
        CommandEntry("model", "List the models that jobs can use; connect your own model."),
        CommandEntry("gpu", "Inspect, drain, release and retry devices (GPUs or CPUs)."),
        CommandEntry("pipeline", "List the pipelines that jobs can use.", module="catalog"),
        CommandEntry("prompt", "Store, show and compare the prompts that ask models for answers."),
        CommandEntry("plugin", "List plug-ins, and create a package for a new one.", module="catalog"),
    ),
    "Operations": (
        CommandEntry(
            "config",
            "Check and show settings; change the configuration while the services run.",
            PlainCommand,
            needs=SERVER,
        ),
        CommandEntry("key", "Create, list, change, rotate and revoke API keys.", PlainCommand, needs=SERVER),
        CommandEntry("service", "Run the stack as a systemd service.", PlainCommand, needs=SERVER, module="stack"),
        CommandEntry(
            "backup",
            "Write the database and the indexes of a running stack to one file, while its jobs run.",
            PlainCommand,
            EMBEDDED,
        ),
        CommandEntry(
            "restore",
            "Restore a backup into a new data directory; its running jobs continue at the next `mathrag up`.",
            PlainCommand,
            EMBEDDED,
            module="backup",
        ),
        CommandEntry(
            "purge",
            "Permanently delete ended jobs, and the model calls that no job uses.",
            PlainCommand,
            needs=SERVER,
        ),
        CommandEntry(
            "completion",
            "Print the completion script for your shell; add it to the shell's startup file.",
            PlainCommand,
        ),
        CommandEntry(
            "mcp", "Run an MCP server for assistants over standard input and output (docs/how-to/mcp.md).", PlainCommand
        ),
    ),
}
"""Commands by the heading under which the help lists them."""
ENTRIES = tuple(entry._replace(panel=panel) for panel, entries in PANELS.items() for entry in entries)


class Mathrag(Commands):
    """Lists every command below `mathrag` without importing it."""

    entries = ENTRIES


app = typer.Typer(
    name="mathrag",
    help="Answer batches of questions with retrieval-augmented generation on one small GPU, and measure how well.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=Mathrag,
)
app.callback()(version.options)

if __name__ == "__main__":
    app()
