"""A judge that knows the truth, for experiments: ``python -m world.oracle --corpora DIR --port 9000``.

It speaks as much of the OpenAI-compatible chat protocol as driver ``remote`` needs, and TGI's ``/info``, which pins it.
The model ``oracle-20`` gives 20 % of the documents one of the other ratings, drawn evenly.  Which documents and which
ratings is decided by a hash, so that it never changes, and a document that ``oracle-10`` misrates is misrated by
``oracle-20`` in the same way.  The truth is what the corpora under DIR (``**/corpus.jsonl``) say of their documents.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

from world.problems import GRADES

MODEL = re.compile(r"oracle-(\d{1,2}|100)")
GREATEST = 2**64
DIGEST = hashlib.sha256(json.dumps(["oracle", 1, GRADES]).encode()).hexdigest()
"""What determines a rating besides the document and the model's name: raise the number with `rating`."""

Truth = Mapping[str, int]
"""By a document as it stands in a prompt, its grade."""


def truth(folder: Path) -> dict[str, int]:
    """The grades of all documents in the corpora under a folder."""
    rows = (
        json.loads(line) for file in folder.glob("**/corpus.jsonl") for line in file.read_text("utf-8").splitlines()
    )
    return {shown(row["problem"], row["text"]): GRADES[row["meta"]["kind"]] for row in rows}


def rating(document: str, grade: int, noise: float) -> int:
    """`grade`, or for a share `noise` of the documents one of the other ratings."""
    digest = hashlib.sha256(document.encode()).digest()
    if int.from_bytes(digest[:8]) >= noise * GREATEST:
        return grade
    others = [other for other in range(1, 6) if other != grade]
    return others[int.from_bytes(digest[8:16]) % len(others)]


def shown(problem: str, text: str) -> str:
    """A document as it stands in a prompt."""
    return f"Problem: {problem}\nSolution: {text}"


def rated(prompt: str) -> str:
    """The document that a prompt of the rubric `reasoning-quality` wants rated: its last paragraph."""
    return prompt.rpartition("\n\n")[2].removesuffix("\nRating:")


def create_app(grades: Truth) -> FastAPI:
    """The server."""

    app = FastAPI(openapi_url=None)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        asked = await request.json()
        model, document = MODEL.fullmatch(asked["model"]), rated(asked["messages"][-1]["content"])
        if model is None or document not in grades:
            raise HTTPException(422, "no oracle, or no document of these corpora, is asked")
        given = rating(document, grades[document], int(model[1]) / 100)
        return completion(asked["model"], f"[[{given}]]")

    @app.get("/info")
    async def info() -> dict[str, str]:
        return {"model_id": "world.oracle", "model_sha": DIGEST, "version": "1"}

    return app


def completion(model: str, text: str) -> Response:
    """A reply as the protocol wants it: a stream, here of one piece."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    chunk = {"object": "chat.completion.chunk", "id": "oracle", "created": 0, "model": model, "choices": [choice]}
    return Response(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvicorn.run(create_app(truth(options.corpora)), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
