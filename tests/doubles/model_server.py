"""What the doubles of TGI and vLLM have in common: a process that serves one model in the words of OpenAI's chat.

They take the command line of the real program and no other, and start a process of their own, as the real ones do,
which they do not end: whoever ends the program has to. `--double WORD` tells one to misbehave from its start;
`crash_on_load` is a word of theirs.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.doubles.chat_server import ChatServer, Reply, Seen, answer, as_json, by_rule, by_word
from tests.doubles.misbehaviour import CONTENT, PATH, TRANSPORT, Misbehaviour

WORDS = (*TRANSPORT, *CONTENT, "digest", "shrink", "hang_on_load", "crash_on_load", "illegal_instruction")
ANSWERS: dict[str, Callable[[str], Reply]] = {
    "length": lambda text: answer(text[:5], "length", {"prompt_tokens": 1_000, "completion_tokens": 5}),
    "empty": lambda _: answer("", "stop", {"prompt_tokens": 1_000, "completion_tokens": 0}),
    "unreadable": lambda _: answer("I would rather not say."),
    "out_of_range": lambda _: answer("[[9]]"),
}
PACE_S = 0.005
"""Of an answer: what happens at half of a stage must find the other half to come."""
CHILD = "import signal; signal.pause()"


class ModelServer(ChatServer):
    """One model, for the life of the process."""

    def __init__(self, context: int, key: str, words: tuple[str, ...] = ()) -> None:
        super().__init__(self._respond)
        self.wrong = Misbehaviour((*WORDS, *words))
        self.context = context
        self.prompts = 0
        """How many were asked, warm-ups not counted."""
        self.loads = ["started"]
        self.running = 0
        """Connections that wait for a reply."""
        self._key = key

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection, and count it while it waits."""
        self.running += 1
        try:
            await super().serve(reader, writer)
        finally:
            self.running -= 1

    def page(self, seen: Seen) -> Reply | None:
        """What its program answers there besides chat; None for no such page."""
        raise NotImplementedError

    def refusal(self, body: dict[str, Any], tokens: int) -> Reply | None:
        """How its program refuses a request whose prompt has so many tokens; None: it answers."""
        raise NotImplementedError

    def allowed(self, body: dict[str, Any]) -> list[str]:
        """The only replies that the request allows, in its program's words; [] if it allows any."""
        raise NotImplementedError

    def needs_key(self, path: str) -> bool:
        """Whether a page is shown to those with the key only."""
        raise NotImplementedError

    def without_key(self) -> Reply:
        """What others are told."""
        raise NotImplementedError

    def crash(self, why: str) -> None:
        """Say something and be gone, once the reply is out."""
        sys.stderr.write(f"{why}\n")
        sys.stderr.flush()
        asyncio.get_running_loop().call_later(0.1, os._exit, 1)

    def _respond(self, seen: Seen) -> Reply:
        match seen.method, seen.path:
            case "POST", path if path == PATH:
                return self.wrong.instruct(seen) or self._document()
            case "GET", "/double":
                return self._document()
            case "GET", "/health":
                return Reply(503 if "hang_on_load" in self.wrong.left else 200)
        if self.needs_key(seen.path) and seen.headers.get("authorization") != f"Bearer {self._key}":
            return self.without_key()
        if (seen.method, seen.path) == ("POST", "/v1/chat/completions"):
            return self._chat(seen.json)
        return self.page(seen) or as_json({"detail": "Not Found"}, 404)

    def _document(self) -> Reply:
        return self.wrong.document(loads=self.loads, prompts=self.prompts, pid=os.getpid())

    def _chat(self, body: dict[str, Any]) -> Reply:
        prompt, most = str(body["messages"][-1]["content"]), body.get("max_tokens", self.context)
        if self.wrong.now("cut"):
            prompt = prompt[len(prompt) // 2 :]
        tokens = len(prompt.split())
        if (refused := self.refusal(body, tokens)) is not None:
            return refused
        text = (self.allowed(body) or [by_rule(prompt)])[-1]
        text, reason = cut(text, min(most, self.context - tokens), body.get("stop") or ())
        logprobs = by_word(text, body["top_logprobs"]) if body.get("logprobs") else None
        reply = answer(text, reason, {"prompt_tokens": tokens, "completion_tokens": len(text.split())}, logprobs)
        if most == 1:  # a warm-up
            return reply
        self.prompts += 1
        time.sleep(PACE_S)
        if self.wrong.now("out_of_memory"):
            self.crash("torch.OutOfMemoryError: CUDA out of memory.")
            return as_json({"error": "CUDA out of memory"}, 500)
        if how := self.wrong.first(ANSWERS):
            reply = ANSWERS[how](text)
        return self.wrong.spoilt(reply)


def cut(text: str, most: int, stop: Iterable[str]) -> tuple[str, str]:
    """Cut a text at its stop words and its length in words; return it with the reason why it ends there."""
    before = min((text.split(each)[0] for each in stop), key=len, default=text)
    words = before.split(" ")
    return (before, "stop") if len(words) <= most else (" ".join(words[:most]), "length")


def run(make: Callable[[argparse.Namespace], ModelServer], options: argparse.Namespace, host: str) -> int:
    """Serve until killed."""
    subprocess.Popen([sys.executable, "-S", "-c", CHILD], process_group=0)
    if "crash_on_load" in options.double:
        sys.stderr.write(f"loading {options.weights} ...\nRuntimeError: not enough memory for the weights\n")
        return 1
    if "illegal_instruction" in options.double:
        os.kill(os.getpid(), signal.SIGILL)
    server = make(options)
    server.wrong.left = dict.fromkeys(options.double)
    asyncio.run(_serve(server, host, options.port))
    return 0


async def _serve(server: ModelServer, host: str, port: int) -> None:
    async with await asyncio.start_server(server.serve, host, port) as listening:
        await listening.serve_forever()


def parser(version: str) -> argparse.ArgumentParser:
    """Of a command line: nothing is abbreviated, and nothing else is taken."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--version", action="version", version=version)
    made.add_argument("--double", action="append", default=[])
    made.add_argument("--port", type=int, required=True)
    return made


REPOSITORY = Path(__file__).parents[2]


def program(folder: Path, double: str) -> str:
    """An executable in `folder` that is `tests.doubles.DOUBLE`."""
    path = folder / double
    path.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m tests.doubles.{double} "$@"\n')
    path.chmod(0o700)
    return str(path)
