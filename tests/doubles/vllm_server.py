"""A double of vLLM 0.11: `python -m tests.doubles.vllm_server`, with the command line of `vllm`, sleep mode included.

It dies of what kills a real one: of a sleep while it answers, and of a prompt while it sleeps. It proves that we speak
the protocol and notice what we must, and nothing about a real server on a real GPU.
"""

import os
import sys
from argparse import Namespace

from tests.doubles.chat_server import Reply, Seen, as_json
from tests.doubles.model_server import ModelServer, parser, run

VERSION = "0.11.0"
MODEL_FIRST = (
    "`model` should be provided as the first positional argument when using `vllm serve`. "
    "i.e. `vllm serve <model> --<arg> <value>`."
)
SLEEP = ("sleepless", "sleeps_awake", "wakeless", "wakes_asleep", "busy")
"""Refuses to sleep; says that it does not; the same of waking; says that it has something to do."""


class VllmServer(ModelServer):
    """A front end with its engine."""

    def __init__(self, options: Namespace) -> None:
        super().__init__(options.max_model_len, os.environ["VLLM_API_KEY"], SLEEP)
        self._options = options
        self._sleeping = False
        self._can_sleep = options.enable_sleep_mode and os.environ.get("VLLM_SERVER_DEV_MODE") == "1"

    def page(self, seen: Seen) -> Reply | None:
        """Models, version, metrics, and the dials of sleep mode."""
        match seen.method, seen.path.partition("?")[0]:
            case "GET", "/v1/models":
                return as_json({"object": "list", "data": [self._card()]})
            case "GET", "/version":
                return as_json({"version": VERSION})
            case "GET", "/metrics":
                return self._metrics()
            case "POST", "/sleep" if self._can_sleep:
                return self._sleep(seen.path.endswith("?level=1"))
            case "POST", "/wake_up" if self._can_sleep:
                return self._wake()
            case "GET", "/is_sleeping" if self._can_sleep:
                asked = "sleeps_awake" in self.wrong.left, "wakes_asleep" in self.wrong.left
                return as_json({"is_sleeping": self._sleeping ^ any(asked)})
        return None

    def overflow(self, tokens: int) -> Reply:
        """As its OpenAI front end does."""
        said = f"This model's maximum context length is {self.context} tokens. However, you requested {tokens} tokens."
        return as_json({"error": {"message": said, "type": "BadRequestError", "code": 400}}, 400)

    def _chat(self, body: dict[str, object]) -> Reply:
        if self._sleeping:
            self.crash("CUDA error: an illegal memory access was encountered")
            return as_json({"error": {"message": "EngineCore encountered an issue", "code": 500}}, 500)
        return super()._chat(body)

    def _card(self) -> dict[str, object]:
        other, shrunk = "digest" in self.wrong.left, "shrink" in self.wrong.left
        return {
            "id": self._options.served_model_name, "object": "model", "owned_by": "vllm", "parent": None,
            "root": "another/model" if other else self._options.weights,
            "max_model_len": self.context // 2 if shrunk else self.context,
        }  # fmt: skip

    def _metrics(self) -> Reply:
        running = self.running - 1 + ("busy" in self.wrong.left)  # this one does not count
        names = {"running": float(running), "waiting": 0.0}
        lines = [f'vllm:num_requests_{name}{{engine="0",model_name="m"}} {count}' for name, count in names.items()]
        return Reply(body="\n".join(["# TYPE vllm:num_requests_running gauge", *lines, ""]).encode())

    def _sleep(self, level_1: bool) -> Reply:
        if self.wrong.now("sleepless"):
            return as_json({"error": {"message": "EngineCore encountered an issue", "code": 500}}, 500)
        if self.running > 1 or not level_1:
            self.crash("CUDA error: an illegal memory access was encountered")
            return as_json({"error": {"message": "EngineCore encountered an issue", "code": 500}}, 500)
        self._sleeping = True
        self.loads.append("slept")
        return Reply()

    def _wake(self) -> Reply:
        if self.wrong.now("wakeless"):
            return as_json({"error": {"message": "CUDA out of memory", "code": 500}}, 500)
        self._sleeping = False
        self.loads.append("woken")
        return Reply()


def main() -> int:
    """Serve until killed."""
    read = parser(VERSION)
    read.add_argument("command", choices=["serve"])
    read.add_argument("weights")
    for name in ("--served-model-name", "--host", "--generation-config", "--revision"):
        read.add_argument(name)
    for name in ("--max-model-len", "--max-num-seqs", "--seed"):
        read.add_argument(name, type=int, required=True)
    for name in ("--no-enable-prefix-caching", "--enable-sleep-mode"):
        read.add_argument(name, action="store_true")
    if sys.argv[1:2] == ["serve"] and sys.argv[2].startswith("-"):
        raise ValueError(MODEL_FIRST)
    options = read.parse_args()
    return run(VllmServer, options, options.host)


if __name__ == "__main__":
    sys.exit(main())
