"""A double of a Self-RAG model behind an OpenAI-compatible server: what it says, and how sure of it it is.

It finds a passage relevant where the question stands in it, and takes its answer from there. What a trained model would
say it cannot prove; that every number on the way from a server to a score is the right one, it can.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.doubles.chat_server import Reply, Seen, answer

PROMPT = re.compile(r"## Input:\n\n(?P<question>.*)\n\n### Response:\n(?P<said>.*)", re.DOTALL)
BOXED = re.compile(r"\\boxed\{\d+\}")
SURE = 0.9
"""Of the likeliest reflection token of each kind."""

Said = Iterator[tuple[str, Mapping[str, float]]]


def respond(seen: Seen) -> Reply:
    """Chat, with log-probabilities where they are asked for; it has no other page."""
    if seen.path != "/v1/chat/completions":
        return Reply(404)
    [message] = seen.json["messages"]
    prompt = PROMPT.search(message["content"])
    assert prompt is not None, message
    tokens = list(spoken(prompt["question"], prompt["said"]))
    top = seen.json.get("top_logprobs", 0)
    logprobs = [_entry(text, shares, top) for text, shares in tokens] if seen.json.get("logprobs") else None
    return answer("".join(text for text, _ in tokens), logprobs=logprobs)


def spoken(question: str, said: str) -> Said:
    """Its tokens with their shares. Of nought it knows the answer; of everything else it wants passages."""
    if not said:
        known = " 0 " in question
        yield _one("[No Retrieval]", "[Retrieval]") if known else _one("[Retrieval]", "[No Retrieval]")
        yield "So \\boxed{0}", {}
    else:
        fits = question in said
        found = BOXED.search(said)
        yield _one("[Relevant]", "[Irrelevant]") if fits else _one("[Irrelevant]", "[Relevant]")
        yield f"So {found[0] if found else 'nothing'}", {}
        yield _one("[Fully supported]", "[No support / Contradictory]")
    yield _one("[Utility:5]", "[Utility:1]")


def _one(likely: str, unlikely: str) -> tuple[str, Mapping[str, float]]:
    return likely, {likely: SURE, unlikely: 1 - SURE}


def _entry(text: str, shares: Mapping[str, float], top: int) -> dict[str, Any]:
    alternatives = [
        {"token": each, "logprob": math.log(share), "bytes": list(each.encode())}
        for each, share in (shares or {text: 0.5}).items()
    ]
    return {**alternatives[0], "top_logprobs": alternatives[:top]}
