"""Pages of docs/reference/ that are generated as a whole: their names, titles, texts and tables."""

from collections.abc import Iterator

import api_pages
import commands
import tables

from shared.params import Params
from shared.settings import Model, Settings

NOTE = "*Written by `make generate` from the code; do not edit.*"

SETTINGS = """\
Begin with a copy of `mathrag.example.yaml`. In the environment a key is `MATHRAG_` and its name in capitals, levels
joined by two underscores: `MATHRAG_DEVICE__BUDGET_MIB=400`. [How to set them](../how-to/operations.md#settings)."""
PARAMETERS = """\
What a job may set: `--set name=value` of `mathrag job submit`, or `params` in its body. A value out of its range is
refused at submission; `context_size` is at most `candidates`.
[How they are used](../explanation/pipelines.md#parameters)."""

ROUTES = """\
How to call them: [REST API](../how-to/api.md). Each group has a page with parameters, bodies and examples:
[jobs](api/jobs.md), [datasets](api/datasets.md), [corpora](api/corpora.md), [experiments](api/experiments.md),
[search](api/search.md), [chat](api/chat.md), [plans](api/plans.md), [prompts](api/prompts.md), [labels](api/labels.md),
[graphs](api/graphs.md), [rules](api/rules.md), [devices](api/gpus.md), [models and pipelines](api/catalog.md),
[configuration](api/configuration.md), [health](api/health.md); and all [schemas](api/schemas.md)."""
CLI = """\
`mathrag COMMAND --help` shows the same. Every command but `demo` takes `--json`: one document on stdout, and errors as
`{"error": {"kind", "message", "hint"}}` on stderr. [Exit codes](exit-codes.md)."""

PIPELINES = "What they compute: [Pipelines](../explanation/pipelines.md)."
ERRORS = "Errors are `application/problem+json` (RFC 9457); `type` is `urn:mathrag:` and the kind."
KEYS = ("key", "default", "meaning")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name below docs/ and the whole text of every page."""
    yield from api_pages.pages()
    yield _page("settings", "Settings", SETTINGS, (KEYS, tables.settings(Settings)), "## A model",
                "Under `models.NAME`:", (KEYS, tables.settings(Model)))  # fmt: skip
    yield _page("parameters", "Parameters", PARAMETERS,
                (("parameter", "default", "range", "meaning"), tables.parameters(Params())))  # fmt: skip
    yield _page("pipelines", "Shipped pipelines", PIPELINES,
                (("pipeline", "what it does", "parameters that it reads"), tables.pipelines()))  # fmt: skip
    yield _page("api", "Routes", ROUTES, (("method", "path", "scope", "what it does"), tables.routes()))
    yield _page("errors", "Errors", ERRORS, (("kind", "status", "meaning"), tables.kinds()))
    yield _page("cli", "Commands", CLI, commands.page())
    yield _page("exit-codes", "Exit codes", "Of every `mathrag` command.",
                (("code", "means", "kinds of error"), tables.exit_codes()))  # fmt: skip


def _page(name: str, title: str, *parts: str | tuple[tables.Row, Iterator[tables.Row]]) -> tuple[str, str]:
    """Return the name below docs/ and the text of a page, of whose parts each is text, or head and rows of a table."""
    path = f"reference/{name}.md"
    texts = [part if isinstance(part, str) else tables.table(*part, path) for part in parts]
    return path, "\n\n".join([f"# {title}", NOTE, *texts]) + "\n"
