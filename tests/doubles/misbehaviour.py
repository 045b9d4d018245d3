"""What a double has been told to do wrong: the words, how often, and the wrong replies that no protocol owns."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.doubles.chat_server import Reply, Seen, as_json

WELL = "well"
PATH = "/double/misbehave"
STATUSES = ("500", "503", "429", "424")
TRANSPORT = (*STATUSES, "hang", "hang_after_headers", "reset", "half")
"""Whatever the reply would have been."""
CONTENT = ("length", "empty", "cut", "out_of_memory", "unreadable", "out_of_range")
"""Said in the words of a protocol."""
MODELS = (
    "digest", "create", "remove", "kill", "die", "end", "loop", "spill", "shrink", "keep", "keep_unlisted", "stranger",
    "hang_on_load",
)  # fmt: skip
"""What Ollama alone does, most of it to what is loaded."""


@dataclass
class Misbehaviour:
    """What one double does wrong at the moment."""

    known: tuple[str, ...]
    """The words that it understands."""
    left: dict[str, int | None] = field(default_factory=dict)
    """How many more times each misbehaviour occurs; None means without end."""

    def instruct(self, seen: Seen) -> Reply | None:
        """Take over an instruction to misbehave; return a refusal if the word is unknown, otherwise None."""
        body: dict[str, Any] = seen.json
        how = body.get("how")
        if how not in (*self.known, WELL):
            return as_json({"error": f"{how!r} is none of {', '.join((*self.known, WELL))}"}, 400)
        if how == WELL:
            self.left.clear()
        else:
            self.left[how] = body.get("times")
        return None

    def now(self, how: str) -> bool:
        """Whether it is to happen; counts as once."""
        if how not in self.left:
            return False
        left = self.left[how]
        if left is not None:
            self.left[how] = left - 1
            if left <= 1:
                del self.left[how]
        return True

    def first(self, words: Iterable[str]) -> str | None:
        """The first of these that is to happen."""
        return next((how for how in words if self.now(how)), None)

    def spoilt(self, reply: Reply) -> Reply:
        """A reply to a prompt as it goes out: as it is, or with one of `TRANSPORT` done to it."""
        match self.first(TRANSPORT):
            case None:
                return reply
            case "hang":
                return Reply(hang=True)
            case "hang_after_headers":
                return replace(reply, stall=True)
            case "reset":
                return replace(reply, body=reply.body[:20], missing=100, reset=True)
            case "half":
                return replace(reply, body=reply.body[: len(reply.body) // 2])
            case status:
                return as_json({"error": f"told to answer {status}"}, int(status))

    def document(self, **fields: object) -> Reply:
        """What `GET /double` says."""
        return as_json({"misbehaves": self.left, **fields})
