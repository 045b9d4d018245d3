"""conversation: the generator answers the messages that the OpenAI endpoints pass on unchanged."""

from shared.contracts.calls import Converse, Decoding
from shared.contracts.params import Params
from shared.contracts.prompts import Message
from shared.contracts.replies import require
from shared.contracts.samples import Conversation, Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag.provenance import make_outcome

CONVERSATION = "conversation"
DRY_RUN = Conversation(messages=(Message(role="user", content="?"),), decoding=Decoding())


@pipeline(CONVERSATION, reads=(), offered=False)
def conversation(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Send the messages to the generator once, without documents."""
    given = sample.given if isinstance(sample.given, Conversation) else DRY_RUN
    generated = require((yield Converse(messages=given.messages, decoding=given.decoding, draw=given.draw)))
    return make_outcome(generated)
