"""Print tables, JSON and errors with their exit codes, ask for confirmation, and parse KEY=VALUE options."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.models import CommandInfo

from mathrag.client.errors import Failed, Shown, failure
from mathrag.client.jobs import Job
from mathrag.installation import SERVER, SERVER_PACKAGE, has_server, import_server, install_command, not_installed

QUOTED = 4
"""Largest number of further invalid lines that an upload's error quotes."""
MAX_CHARACTERS = 300
"""Number of characters of a long text that are printed."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel="Output")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory of the stack (default: .mathrag).")
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def print_json(value: Any) -> None:
    """Print `value` as one indented JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_lines_as_json(chunks: Iterable[bytes]) -> None:
    """Print JSON lines as one array; each line is printed as soon as it arrives."""
    separator, rest = "[", b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            typer.echo(separator + line.decode(), nl=False)
            separator = ",\n "
    typer.echo("]" if separator != "[" else "[]")


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell, with numbers right-aligned and None as "-"."""
    cells = [list(head), *(["-" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        aligned = (
            cell.rjust(width) if cell.replace(".", "").isdecimal() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        typer.echo("  ".join(aligned).rstrip())


def print_facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one name and value per line; omit empty values."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", {}, [])]
    width = max([16, *(len(name) + 1 for name, _ in shown)])
    for name, value in shown:
        typer.echo(f"  {name:<{width}}{('no', 'yes')[value] if isinstance(value, bool) else value}")


def shorten(value: Any) -> Any:
    """Return the first `MAX_CHARACTERS` characters of a longer text; return any other value unchanged."""
    return f"{value[:MAX_CHARACTERS]} ..." if isinstance(value, str) and len(value) > MAX_CHARACTERS else value


def describe_wait(found: Any, now: datetime | None = None) -> str:
    """Return text such as "for Elasticsearch at 127.0.0.1:9200 since 12:04, next try in 8 s", in local time."""
    since = datetime.fromisoformat(found["since"]).astimezone()
    if found["next_try"] is None:
        return f"for {found['what']}: {found['said']}"
    left_s = (datetime.fromisoformat(found["next_try"]) - (now or datetime.now(UTC))).total_seconds()
    following = f"next try in {left_s:.0f} s" if left_s >= 1 else "trying now"
    return f"for {found['what']} since {since:%H:%M}, {following}"


def summarise(job: Job) -> str:
    """Return a line such as "first  running  retrieve 20/40  judge 3/10  samples 0/100"."""
    counts = job["request_counts"]
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in job.get("stages", {}).items()]
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    return "  ".join([job["name"], job["state"], *stages, samples, *describe_waits(job)])


def describe_waits(job: Job) -> list[str]:
    """Return a line for each unavailable service, and one for models that no guard serves."""
    away = [f"waiting {describe_wait(each)}" for each in job.get("waiting", ())]
    return [*away, *filter(None, [describe_unserved(job)])]


def describe_unserved(job: Job) -> str:
    """Name the job's models that no guard serves, with a remedy; return "" if all are served."""
    names = ", ".join(job.get("unserved", ()))
    problem = f"no guard serves {names} in the version that the job pinned when it was submitted"
    return f"{problem}: restore the model and restart the guard, or cancel and submit again" if names else ""


def print_warnings(answer: Any) -> None:
    """Print the warnings in the answer to an accepted request on standard error."""
    for warning in answer.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


# Exit codes and error messages of commands. The table of exit codes does not change: scripts rely on it.
#
# Errors go to stderr: `error: MESSAGE`, `  also: MESSAGE` for further lines, and `  fix: HINT`. With --json they are
# {"error": {"kind", "message", "hint"}}, plus "others" if there are further lines.


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    """Done."""
    FINDING = 1
    """A finding: a job failed, was cancelled or missed a limit of a check; an audit or the doctor found a problem;
    lines of an upload were left out; or no service runs."""
    USAGE = 2
    """The command line is wrong, or the server or this installation lacks the requested feature."""
    NOT_FOUND = 3
    """No object has this name or id."""
    INVALID = 4
    """The input is invalid; the message names the field, or the file and line."""
    CONFLICT = 5
    """A conflict: the name is taken, the id is ambiguous, the state does not allow it, or another release wrote it."""
    UNREACHABLE = 6
    """Try again later: the server, or a service that it needs, is unavailable or overloaded."""
    INTERNAL = 7
    """An internal error of MathRAG-Gate."""
    REFUSED = 8
    """Refused: the API key is missing, invalid, or lacks the scope."""
    INTERRUPTED = 130
    """You interrupted the command; jobs that it submitted continue."""


CODES = {
    "usage": Exit.USAGE,
    "not_implemented": Exit.USAGE,
    "not_installed": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "bad_request": Exit.INVALID,
    "invalid": Exit.INVALID,
    "invalid_line": Exit.INVALID,
    "too_large": Exit.INVALID,
    "header_too_large": Exit.INVALID,
    "conflict": Exit.CONFLICT,
    "in_progress": Exit.CONFLICT,
    "unreadable": Exit.CONFLICT,
    "idempotency_mismatch": Exit.CONFLICT,
    "precondition_failed": Exit.CONFLICT,
    "precondition_required": Exit.CONFLICT,
    "unavailable": Exit.UNREACHABLE,
    "out_of_space": Exit.UNREACHABLE,
    "refused": Exit.UNREACHABLE,
    "unreachable": Exit.UNREACHABLE,
    "too_many": Exit.UNREACHABLE,
    "timed_out": Exit.UNREACHABLE,
    "internal": Exit.INTERNAL,
    "unauthorized": Exit.REFUSED,
    "forbidden": Exit.REFUSED,
}
"""Exit codes by the kind of the error; a kind that only newer servers know counts as internal."""
SETTINGS_READERS = ("pydantic_core", "pydantic_settings", "yaml")
"""Packages whose exceptions report wrong settings."""
OWN = ("mathrag", "mathrag_gate", "migrations", "services", "shared")
"""Packages of this project: a missing module of theirs is a defect; any other missing module was not installed."""


@contextmanager
def report_errors(*, as_json: bool, needs: str = SERVER) -> Iterator[None]:
    """Turn an error into a message on stderr and an exit code.

    `needs` is the requirement that installs the packages of the command.
    """
    try:
        yield
    except Shown:
        raise typer.Exit(Exit.DONE) from None
    except BrokenPipeError:
        # The reader closed the pipe (`| head`); flushing at exit must not fail either.
        sys.stderr.close()
        raise typer.Exit(Exit.DONE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - a defect also has an exit code
        failed = _to_failure(error, needs)
        if as_json:
            others = {"others": failed.others} if failed.others else {}
            problem = {"kind": failed.kind, "message": failed.message, "hint": failed.hint, **others}
            typer.echo(msgspec.json.encode({"error": problem}).decode(), err=True)
        else:
            _print_failure(failed)
        raise typer.Exit(CODES.get(failed.kind, Exit.INTERNAL)) from None


def _print_failure(failed: Failed) -> None:
    typer.echo(f"error: {failed.message}", err=True)
    for other in failed.others[:QUOTED]:
        typer.echo(f"  also: {other}", err=True)
    if len(failed.others) > QUOTED:
        typer.echo(f"  also: {len(failed.others) - QUOTED} more", err=True)
    if failed.hint:
        typer.echo(f"  fix: {failed.hint}", err=True)


def is_not_installed(error: Exception) -> bool:
    """Return True if the error says that the server or a third-party package is not installed."""
    return isinstance(error, ModuleNotFoundError) and (
        error.name == SERVER_PACKAGE or _top_package(error.name or "") not in OWN
    )


def _top_package(module: str) -> str:
    return module.partition(".")[0]


def _to_failure(error: Exception, needs: str) -> Failed:
    """Convert any error to a `Failed` with a message, a hint and a kind of `CODES`."""
    if isinstance(error, ModuleNotFoundError) and is_not_installed(error):
        return failure(not_installed(_top_package(error.name or ""), needs))
    # Only a command that has loaded settings gets these errors, so the imports below cost nothing.
    if has_server() and _top_package(type(error).__module__) in SETTINGS_READERS:
        findings = import_server("mathrag_gate.cli.config_findings")
        if isinstance(error, findings.REFUSALS):
            return Failed("invalid", str(findings.explain(error)[0]), hint="mathrag config validate")
    return failure(error)


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, as_json: bool) -> None:
    """Ask `question` on the terminal, and return if the user confirms it.

    Raises:
        Failed: standard input is not a terminal, or `as_json` is set.
        typer.Exit: the user declines.
    """
    if as_json or not sys.stdin.isatty():
        raise Failed(
            "usage",
            "cannot ask for confirmation: " + ("--json is set" if as_json else "standard input is not a terminal"),
            hint="add --yes; --dry-run shows the request",
        )
    if not typer.confirm(question):
        raise typer.Exit(Exit.FINDING)


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Parameter, such as rrf_k=30; repeat for several."),
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model", metavar="ROLE=NAME", help="Model of a role, such as judge=world-judge; repeat for several."
    ),
]


def parse_parameters(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """Parse `["gate.tau=0.3"]` into {"gate": {"tau": 0.3}}; a value that is not JSON is text.

    Raises:
        Failed: an entry is not KEY=VALUE, a key is given twice, or a key has both a value and keys below it.
    """
    tree: dict[str, Any] = {}
    for setting in settings:
        key, value = split_pair(setting, option)
        *parents, leaf = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                hint = f"set either `{parent}` or its parts, not both"
                raise Failed("usage", f"{option} {setting}: `{parent}` already has a value", hint=hint)
        if leaf in branch:
            raise Failed("usage", f"{option} {setting}: `{key}` already has a value", hint="give it once")
        try:
            branch[leaf] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            branch[leaf] = value
    return tree


def flatten_parameters(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield nested parameters in the form of `--set`, such as gate.tau=0.3: the inverse of `parse_parameters`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten_parameters(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={msgspec.json.encode(value).decode()}"


def split_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Split texts of the form KEY=VALUE into a dictionary.

    Raises:
        Failed: a text does not have this form, or a key is given twice.
    """
    found: dict[str, str] = {}
    for key, value in (split_pair(text, option) for text in texts or []):
        if key in found:
            raise Failed("usage", f"{option} {key}={value}: `{key}` already has a value", hint="give it once")
        found[key] = value
    return found


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split KEY=VALUE into key and value.

    Raises:
        Failed: the text does not have this form.
    """
    key, separator, value = text.partition("=")
    if not separator or not all(key.split(".")):
        raise Failed("usage", f"{option} {text} is not of the form KEY=VALUE", hint=f"write {option} KEY=VALUE")
    return key, value


ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def make_stand_in(name: str, help_line: str, missing: ModuleNotFoundError, needs: str, cls: type[Any]) -> CommandInfo:
    """Return a command that accepts every argument and fails with `missing` and the command that installs `needs`."""
    from rich.markup import escape

    def end(ctx: typer.Context) -> None:
        with report_errors(as_json="--json" in ctx.args, needs=needs):
            raise missing

    command = escape(install_command(needs))
    text = f"{help_line}\n\nThis command needs packages that are not installed. To install them: {command}"
    return CommandInfo(name=name, callback=end, help=text, cls=cls, context_settings=ANYTHING)
