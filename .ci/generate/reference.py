"""Pages of docs/reference/ that are generated as a whole: what they are called, and what stands on them."""

from collections.abc import Callable, Iterator

import api_pages
import commands
import tables

NOTE = "*Written by `make generate` from the code; do not edit.*"
Part = str | Callable[[str], str]
"""Text as it stands, or what makes it for the page of this name."""

SETTINGS = """\
Begin with a copy of `mathrag.example.yaml`. In the environment a key is `MATHRAG_` and its name in capitals, levels
joined by two underscores: `MATHRAG_DEVICE__BUDGET_MIB=400`. [How to set them](../how-to/operations.md#settings)."""
PARAMETERS = """\
What a job may set: `--set name=value` of `mathrag job submit`, or `params` in its body.
[How they are used](../explanation/pipelines.md#parameters)."""

ROUTES = """\
How to call them: [REST API](../how-to/api.md). Each group has a page with parameters, bodies and examples:
[jobs](api/jobs.md), [datasets](api/datasets.md), [corpora](api/corpora.md), [experiments](api/experiments.md),
[search](api/search.md), [chat](api/chat.md), [plans](api/plans.md), [labels](api/labels.md), [graphs](api/graphs.md),
[rules](api/rules.md), [devices](api/gpus.md), [models and pipelines](api/catalog.md),
[configuration](api/configuration.md), [health](api/health.md); and all [schemas](api/schemas.md)."""
CLI = """\
`mathrag COMMAND --help` shows the same. Every command but `demo` takes `--json`: one document on stdout, and errors as
`{"error": {"kind", "message", "hint"}}` on stderr. [Exit codes](exit-codes.md)."""

PAGES: dict[str, tuple[str, tuple[Part, ...]]] = {
    "reference/settings.md": (
        "Settings",
        (SETTINGS, tables.settings, "## A model", "Under `models.NAME`:", tables.model_settings),
    ),
    "reference/parameters.md": ("Parameters", (PARAMETERS, tables.parameters)),
    "reference/pipelines.md": (
        "Shipped pipelines",
        ("What they compute: [Pipelines](../explanation/pipelines.md).", tables.pipelines),
    ),
    "reference/api.md": (
        "Routes",
        (ROUTES, tables.routes),
    ),
    "reference/errors.md": (
        "Errors",
        ("Errors are `application/problem+json` (RFC 9457); `type` is `urn:mathrag:` and the kind.", tables.kinds),
    ),
    "reference/cli.md": ("Commands", (CLI, lambda _: commands.page())),
    "reference/exit-codes.md": ("Exit codes", ("Of every `mathrag` command.", tables.exit_codes)),
}
"""Pages below docs/: title and parts."""


def pages() -> Iterator[tuple[str, str]]:
    """The name below docs/ and the whole text of every page."""
    yield from api_pages.pages()
    for name, (title, parts) in PAGES.items():
        texts = [part if isinstance(part, str) else part(name) for part in parts]
        yield name, "\n\n".join([f"# {title}", NOTE, *texts]) + "\n"
