"""Bodies of `/v1/chat/completions`: supported fields are read, all others are refused by name.

Fields that clients send with a value that changes nothing are accepted with that value only.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from services.orchestrator.openai.bodies import NoTexts, Nothing, StrictBody
from shared.calls import MAX_QUESTION, Decoding, Message
from shared.errors import Invalid
from shared.runtime.submit import choose_draw
from shared.samples import Conversation

MOST_MESSAGES = 1000
LARGEST_SEED = 2**63 - 1


class TextPart(StrictBody):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


def _list_parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Content = Annotated[list[TextPart], BeforeValidator(_list_parts, json_schema_input_type=str | list[TextPart])]
"""A text, or parts of it."""


class ChatMessage(StrictBody):
    """A message; `developer` is OpenAI's newer word for `system`. Of an answer, all that it holds may be sent again."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    annotations: Nothing | None = None
    tool_calls: Nothing | None = None

    def read(self) -> Message:
        """Join the parts of the message."""
        text = "".join(part.text for part in self.content)
        return Message(role="system" if self.role == "developer" else self.role, content=text)


class TextFormat(StrictBody):
    """The only supported format of an answer."""

    type: Literal["text"]


class StreamOptions(StrictBody):
    """Options for the end of a stream."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class ChatCompletionRequest(StrictBody):
    """A conversation to continue."""

    model: Annotated[str, Field(min_length=1, max_length=300)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    top_p: Literal[1] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    store: Literal[False] | None = None
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    service_tier: Literal["auto", "default"] | None = None
    stop: NoTexts | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None

    def make_conversation(self, configured: Decoding) -> Conversation:
        """Return the conversation for the generator, word for word, with configured values for what the request
        leaves out.

        Raises:
            Invalid: the last message is not the user's.
        """
        decoding = self.make_decoding(configured)
        draw = choose_draw(decoding.temperature, self.seed)
        return Conversation(messages=self._read_messages(), decoding=decoding, draw=draw)

    def _read_messages(self) -> tuple[Message, ...]:
        """Return the messages.

        Raises:
            Invalid: the last one is not the user's.
        """
        messages = tuple(each.read() for each in self.messages)
        if messages[-1].role != "user":
            raise Invalid("`messages`: the last message must be the user's")
        return messages

    def question(self) -> str:
        """Return the only message, as the question for a pipeline.

        Raises:
            Invalid: there are several messages, or the only one is not the user's or too long, or a seed is given.
        """
        messages = self._read_messages()
        if len(messages) > 1:
            raise Invalid("`messages`: a pipeline answers one question; send one message of the user's")
        if not messages[0].content.strip():
            raise Invalid("`messages`: the question is empty")
        if len(messages[0].content) > MAX_QUESTION:
            raise Invalid(f"`messages`: a question has at most {MAX_QUESTION} characters")
        if self.seed is not None:
            raise Invalid("`seed`: is not supported where a pipeline answers", hint="leave it out")
        return messages[0].content

    def make_decoding(self, configured: Decoding) -> Decoding:
        """Return how the model samples, with configured values for what the request leaves out."""
        longest = self.max_completion_tokens or self.max_tokens or configured.max_tokens
        temperature = configured.temperature if self.temperature is None else self.temperature
        return Decoding(temperature=temperature, max_tokens=longest)
