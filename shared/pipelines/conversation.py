"""conversation: the generator answers the messages that the OpenAI endpoints pass on unchanged."""

from shared.calls import Converse, Decoding, Message
from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.provenance import make_outcome
from shared.replies import require
from shared.samples import Conversation, Library, Sample, Steps

CONVERSATION = "conversation"
DRY_RUN = Conversation(messages=(Message(role="user", content="?"),), decoding=Decoding())


@pipeline(CONVERSATION, reads=(), offered=False)
def conversation(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Send the messages to the generator once, without documents."""
    given = sample.given if isinstance(sample.given, Conversation) else DRY_RUN
    generated = require((yield Converse(messages=given.messages, decoding=given.decoding, draw=given.draw)))
    return make_outcome(generated)
