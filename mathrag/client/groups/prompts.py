"""Prompts: how models are asked for answers."""

from mathrag.client import prompts
from mathrag.client.answers import AnswerPrompt, PromptComparison
from mathrag.client.operations import C, Group, Operation


class Prompts(Group[C]):
    """Prompts: how models are asked for answers."""

    create = Operation(prompts.create, AnswerPrompt)
    get = Operation(prompts.get, AnswerPrompt)
    versions = Operation(prompts.versions, list[AnswerPrompt])
    differences = Operation(prompts.differences, PromptComparison)
    list = Operation(prompts.list_prompts, list[AnswerPrompt])
