"""Serves `/v1/prompts`: the prompts with which models are asked for answers."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.access.identity import Actor
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.comparison import PromptDifference, compare_prompts
from shared.fields import Stored
from shared.rag.prompts import LONGEST_TEXT, MOST_EXAMPLES, Example
from shared.shapes import Scope
from shared.storage.prompts import (
    AnswerPrompt,
    PromptContent,
    create_prompt,
    list_prompts,
    list_versions,
    load_prompt,
)

router = APIRouter(prefix="/v1/prompts", tags=["prompts"])

Text = Annotated[str, Field(max_length=LONGEST_TEXT, pattern=r"^[^\x00]*$")]
NeededText = Annotated[Text, Field(min_length=1)]
Reference = Annotated[
    str, Path(examples=["short"], description="`NAME` for the newest version, `NAME@2` or `NAME@HASH` for one version.")
]


class ExampleRequest(BaseModel):
    """A worked example (few-shot)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    question: NeededText
    """Question of the example."""
    answer: NeededText
    """Answer that the model is shown."""
    context: Text = ""
    """Text that replaces `{{context}}` in this example."""


class PromptRequest(BaseModel):
    """A prompt to store."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("PromptRequest")},
    )

    name: str
    """Name of the prompt."""
    text: NeededText
    """The user's message. `{{question}}` is replaced by the question, and `{{context}}` by the documents, each followed
    by an empty line."""
    system: Text = ""
    """The system prompt, without placeholders."""
    examples: Annotated[list[ExampleRequest], Field(max_length=MOST_EXAMPLES)] = []
    """Worked examples. Each becomes a user message in the form of `text` and an assistant reply."""

    def to_content(self) -> PromptContent:
        """Return the content without the name."""
        examples = tuple(msgspec.convert(each.model_dump(), Example) for each in self.examples)
        return PromptContent(text=self.text, system=self.system, examples=examples)


class PromptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two prompts, and the lines that only one of them has."""

    left: AnswerPrompt
    """The left prompt."""
    right: AnswerPrompt
    """The right prompt."""
    difference: PromptDifference
    """The lines that differ."""


@route(
    router, "POST", "", Scope.SUBMIT, "Store a prompt",
    answers(AnswerPrompt) | answers(AnswerPrompt, status=201), refuses=(409,), status_code=201,
)  # fmt: skip
async def create(request: PromptRequest, deps: RequestDeps, actor: Actor) -> Response:
    """Stores a prompt as the next version of its name. Answers 200 if the newest version has the same content.
    Versions are never changed or deleted, because jobs refer to them. A job with `generate.template` set to the
    name uses the version that is the newest at its submission (docs/how-to/prompts.md).
    """
    made, new = await create_prompt(deps.database, actor, request.name, request.to_content())
    return json(made, 201 if new else 200, {"Location": f"/v1/prompts/{made.name}"})


@route(router, "GET", "", Scope.READ, "List prompts", answers(list[AnswerPrompt]), name="listed")
async def list_answer_prompts(deps: RequestDeps) -> Response:
    """Lists the newest version of each stored prompt, then the shipped prompts and the files of `plugins.templates`."""
    async with deps.database.statement() as connection:
        return json(await list_prompts(connection))


@route(router, "GET", "/{reference}", Scope.READ, "Get a prompt", answers(AnswerPrompt), refuses=(404,))
async def get(deps: RequestDeps, reference: Reference) -> Response:
    """Returns a prompt with its text, system prompt and examples."""
    async with deps.database.statement() as connection:
        return json(await load_prompt(connection, reference))


@route(
    router, "GET", "/{name}/versions", Scope.READ, "List a prompt's versions", answers(list[AnswerPrompt]),
    refuses=(404,),
)  # fmt: skip
async def versions(deps: RequestDeps, name: str) -> Response:
    """Lists every version of a prompt, the newest first."""
    async with deps.database.statement() as connection:
        return json(await list_versions(connection, name))


@route(
    router, "GET", "/{reference}/differences", Scope.READ, "Compare two prompts", answers(PromptComparison),
    refuses=(404,),
)  # fmt: skip
async def differences(
    deps: RequestDeps,
    reference: Reference,
    other: Annotated[Stored, Query(examples=["short@1"], description="The prompt to compare with.")],
) -> Response:
    """Compares the text, system prompt and examples of two prompts line by line."""
    async with deps.database.statement() as connection:
        left, right = await load_prompt(connection, reference), await load_prompt(connection, other)
    difference = compare_prompts(left.to_text(), right.to_text())
    return json(PromptComparison(left=left, right=right, difference=difference))
