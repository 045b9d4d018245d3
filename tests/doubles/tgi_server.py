"""A double of text-generation-inference 3: `python -m tests.doubles.tgi_server`, with `text-generation-launcher`'s
command line. It proves that we speak the protocol and notice what we must, and nothing about a real server.

No real one was ever run here: it is checked by the published description of its pages and errors
(`tests/unit/tests/test_recorded_servers.py`).
"""

import os
import re
import sys
from argparse import Namespace
from typing import Any

from tests.doubles import chat_server
from tests.doubles.chat_server import Reply, Seen, as_json
from tests.doubles.model_server import ModelServer, parser, run

VERSION = "3.3.7"
ERRORS = {
    424: ("Request failed during generation", "generation"),
    429: ("Model is overloaded", "overloaded"),
    500: ("Incomplete generation", "incomplete_generation"),
}
"""What is not the request's fault."""
OTHER = "f" * 40
"""The revision of another model."""


class TgiServer(ModelServer):
    """A launcher with its router and shards."""

    def __init__(self, options: Namespace) -> None:
        super().__init__(options.max_total_tokens, os.environ["API_KEY"])
        self._options = options

    def page(self, seen: Seen) -> Reply | None:
        """Answer `/info`; None for other pages."""
        if (seen.method, seen.path) != ("GET", "/info"):
            return None
        other, shrunk = "digest" in self.wrong.left, "shrink" in self.wrong.left
        return as_json(
            {
                "model_id": self._options.weights,
                "model_sha": OTHER if other else self._options.revision,
                "model_pipeline_tag": "text-generation",
                "max_concurrent_requests": self._options.max_concurrent_requests,
                "max_best_of": 2,
                "max_stop_sequences": 4,
                "max_input_tokens": self._options.max_input_tokens,
                "max_total_tokens": self.context // 2 if shrunk else self.context,
                "validation_workers": 2,
                "max_client_batch_size": 4,
                "router": "text-generation-router",
                "version": VERSION,
            }
        )

    def needs_key(self, path: str) -> bool:
        """These pages anybody may read."""
        return path not in ("/info", "/metrics", "/v1/models")

    def without_key(self) -> Reply:
        return Reply(401)

    def refusal(self, body: dict[str, Any], tokens: int) -> Reply | None:
        """Prompt and answer must fit together, which is looked at first; a stream has begun by then."""
        most = body.get("max_tokens", 1)
        if tokens + most <= self.context:
            return None
        said = f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {self.context}. Given: {tokens}"
        said = f"{said} `inputs` tokens and {most} `max_new_tokens`"
        if body.get("stream"):
            event = chat_server.events({"error": {"message": said, "http_status_code": 422}})
            return Reply(body=event, headers={"Content-Type": chat_server.EVENTS})
        return as_json({"error": said, "error_type": "validation"}, 422)

    def allowed(self, body: dict[str, Any]) -> list[str]:
        """A regular expression of alternatives, as in `response_format` of a chat (router/src/lib.rs, GrammarType)."""
        wanted = body.get("response_format", {})
        pattern = wanted["value"].strip("()") if wanted.get("type") == "regex" else ""
        return [re.sub(r"\\(.)", r"\1", each) for each in pattern.split("|") if each]

    def _chat(self, body: dict[str, Any]) -> Reply:
        reply = super()._chat(body)
        words = ERRORS.get(reply.status)
        return as_json({"error": words[0], "error_type": words[1]}, reply.status) if words else reply


def main() -> int:
    """Serve until killed."""
    read = parser(f"text-generation-launcher {VERSION}")
    read.add_argument("--model-id", dest="weights", required=True)
    for name in ("--hostname", "--revision", "--shard-uds-path", "--usage-stats"):
        read.add_argument(name)
    for name in ("--max-input-tokens", "--max-total-tokens", "--max-concurrent-requests", "--master-port"):
        read.add_argument(name, type=int, required=True)
    options = read.parse_args()
    return run(TgiServer, options, options.hostname)


if __name__ == "__main__":
    sys.exit(main())
