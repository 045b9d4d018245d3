"""A double of vLLM 0.32: `python -m tests.doubles.vllm_server`, with the command line of `vllm`, sleep mode included.

It dies of what kills a real one: of a sleep while it answers, and of a prompt while it sleeps. It proves that we speak
the protocol and notice what we must, and nothing about a real server on a real GPU. What it answers is checked by
`tests/unit/tests/test_recorded_servers.py`; sleep mode was never recorded, as a processor has none.
"""

import os
import sys
import time
from argparse import Namespace
from typing import Any

from tests.doubles.chat_server import Reply, Seen, as_json
from tests.doubles.model_server import ModelServer, parser, run

VERSION = "0.32.0"
MOST_LOGPROBS = 20
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
        """Answer models, version, metrics and the switches of sleep mode; None for other pages."""
        match seen.method, seen.path.partition("?")[0]:
            case "GET", "/v1/models":
                return as_json({"object": "list", "data": [self._card()]})
            case "GET", "/version":
                return as_json({"version": VERSION})
            case "GET", "/load":
                return as_json({"server_load": 0})
            case "GET", "/metrics":
                return self._metrics()
            case "POST", "/sleep" if self._can_sleep:
                return self._sleep(seen.path.endswith("?level=1"))
            case "POST", "/wake_up" if self._can_sleep:
                return self._wake()
            case "GET", "/is_sleeping" if self._can_sleep:
                settings = "sleeps_awake" in self.wrong.left, "wakes_asleep" in self.wrong.left
                return as_json({"is_sleeping": self._sleeping ^ any(settings)})
        return None

    def needs_key(self, path: str) -> bool:
        """Require a key for the pages that OpenAI's API has, too, and for no other."""
        return path.startswith("/v1/")

    def without_key(self) -> Reply:
        return as_json({"error": "Unauthorized"}, 401)

    def refusal(self, body: dict[str, Any], tokens: int) -> Reply | None:
        """What fits is answered, cut at the end of the context if need be."""
        most, wanted, context = body.get("max_tokens", 1), body.get("top_logprobs", 0), self.context
        if body["model"] != self._options.served_model_name:
            message = f"The model `{body['model']}` does not exist. Valid aliases: {self._options.served_model_name}."
            return _refuse(message, "model", kind="NotFoundError", status=404)
        if not isinstance(body.get("temperature", 0.0), int | float):
            return _invalid("float_parsing", "temperature", "Input should be a valid number, unable to parse string")
        if most < 1:
            return _refuse(f"max_tokens must be at least 1, got {most}. (parameter=max_tokens)", "max_tokens")
        if most > context:
            message = (
                f"max_tokens={most} cannot be greater than max_model_len={context}. Please request fewer output tokens."
            )
            return _refuse(message, "max_tokens")
        if wanted > MOST_LOGPROBS:
            message = f"Requested sample logprobs of {wanted}, which is greater than max allowed: {MOST_LOGPROBS}"
            return _refuse(message, "logprobs")
        if tokens >= context:
            message = f"This model's maximum context length is {context} tokens. However, your prompt contains at least"
            return _refuse(f"{message} {tokens} input tokens, which exceeds this limit", "input_tokens")
        return None

    def allowed(self, body: dict[str, Any]) -> list[str]:
        """Since 0.12 nothing else than this field does."""
        return list(body.get("structured_outputs", {}).get("choice", ()))

    def _chat(self, body: dict[str, Any]) -> Reply:
        if self._sleeping:
            self.crash("CUDA error: an illegal memory access was encountered")
            return as_json({"error": {"message": "EngineCore encountered an issue", "code": 500}}, 500)
        if not isinstance(body["messages"], list):
            return _invalid("list_type", "messages", "Input should be a valid list")
        return super()._chat(body)

    def _card(self) -> dict[str, object]:
        other, shrunk = "digest" in self.wrong.left, "shrink" in self.wrong.left
        return {
            "id": self._options.served_model_name, "object": "model", "created": int(time.time()), "owned_by": "vllm",
            "parent": None,
            "root": "another/model" if other else self._options.weights,
            "max_model_len": self.context // 2 if shrunk else self.context,
        }  # fmt: skip

    def _metrics(self) -> Reply:
        running = self.running - 1 + ("busy" in self.wrong.left)  # this one does not count
        names = {"running": float(running), "waiting": 0.0}
        lines = [f'vllm:num_requests_{name}{{engine="0",model_name="m"}} {count}' for name, count in names.items()]
        body = "\n".join(["# TYPE vllm:num_requests_running gauge", *lines, ""]).encode()
        return Reply(body=body, headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})

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


def _refuse(said: str, parameter: str, *, kind: str = "BadRequestError", status: int = 400) -> Reply:
    return as_json({"error": {"message": said, "type": kind, "param": parameter, "code": status}}, status)


def _invalid(kind: str, field: str, said: str) -> Reply:
    """Refuse a field in pydantic's words."""
    words = f"1 validation error:\n  {{'type': '{kind}', 'loc': 'body.{field}', 'msg': '{said}'}}"
    return _refuse(words, f"body.{field}", kind="Bad Request")


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
