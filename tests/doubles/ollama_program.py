"""The double of Ollama as a program: `ollama serve` at OLLAMA_HOST, which keeps in OLLAMA_MODELS what was created.

How a file is sent and made into a model is as the API's documentation says; it was never recorded on a real server.
"""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from shared.models.ollama import make_full_tag
from tests.doubles.answers import by_rule
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server
from tests.doubles.ollama_models import Manifest
from tests.doubles.ollama_server import Ollama

BLOBS = "/api/blobs/sha256:"


class Program:
    """A server, and the folder with the requests that created its models."""

    def __init__(self, folder: Path) -> None:
        self.double = Ollama(most=1, answer=answer_the_user)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            self._create(json.loads(each.read_text()))

    def respond(self, seen: Seen) -> Reply:
        """As the double, and make models."""
        if seen.path.startswith(BLOBS):
            same = seen.path == BLOBS + hashlib.sha256(seen.body).hexdigest()
            return Reply(status=201) if same else as_json({"error": "digest mismatch"}, 400)
        if seen.path in ("/api/create", "/api/delete"):
            file = self._folder / f"{make_full_tag(seen.json['model'])}.json"
            file.unlink(missing_ok=True)
            if seen.path == "/api/create":
                file.write_bytes(seen.body)
                self._create(seen.json)
                return as_json({"status": "success"})
        return self.double.respond(seen)

    def _create(self, body: dict[str, Any]) -> None:
        (weights,) = body["files"].values()
        parts = (body["system"], body["template"], tuple(body["parameters"].items()))
        self.double.put(make_full_tag(body["model"]), Manifest(weights, *parts))


def answer_the_user(prompt: str) -> str:
    """By the rule, from the last turn of a prompt in ChatML."""
    return by_rule(prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0])


async def main() -> None:
    """Serve until the process is ended."""
    port = int(os.environ["OLLAMA_HOST"].rpartition(":")[2])
    async with chat_server(Program(Path(os.environ["OLLAMA_MODELS"])).respond, port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
