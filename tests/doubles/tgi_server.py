"""A double of text-generation-inference 3: `python -m tests.doubles.tgi_server`, with `text-generation-launcher`'s
command line. It proves that we speak the protocol and notice what we must, and nothing about a real server.
"""

import os
import sys
from argparse import Namespace

from tests.doubles.chat_server import Reply, Seen, as_json
from tests.doubles.model_server import ModelServer, parser, run

VERSION = "3.3.6"
OTHER = "f" * 40
"""The revision of another model."""


class TgiServer(ModelServer):
    """A launcher with its router and shards."""

    def __init__(self, options: Namespace) -> None:
        super().__init__(options.max_total_tokens, os.environ["API_KEY"])
        self._options = options

    def page(self, seen: Seen) -> Reply | None:
        """`/info`."""
        if (seen.method, seen.path) != ("GET", "/info"):
            return None
        other, shrunk = "digest" in self.wrong.left, "shrink" in self.wrong.left
        return as_json(
            {
                "model_id": self._options.weights,
                "model_sha": OTHER if other else self._options.revision,
                "model_pipeline_tag": "text-generation",
                "max_concurrent_requests": self._options.max_concurrent_requests,
                "max_input_tokens": self._options.max_input_tokens,
                "max_total_tokens": self.context // 2 if shrunk else self.context,
                "router": "text-generation-router",
                "version": VERSION,
            }
        )

    def overflow(self, tokens: int) -> Reply:
        """As its validation does (router/src/validation.rs)."""
        said = f"`inputs` must have less than {self._options.max_input_tokens} tokens. Given: {tokens}"
        return as_json({"error": f"Input validation error: {said}", "error_type": "validation"}, 422)


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
