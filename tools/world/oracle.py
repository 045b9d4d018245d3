"""Serve a judge that knows the truth, for experiments: ``python -m tools.world.oracle --corpora DIR --port 9000``.

It has the part of the OpenAI-compatible chat protocol that driver ``remote`` needs, and TGI's ``/info``, which pins it.
The model ``oracle-20`` gives 20 % of the documents one of the other ratings, drawn evenly. A hash decides on documents
and ratings, so that they never change, and ``oracle-20`` misrates what ``oracle-10`` misrates in the same way. The
truth is in the corpora under DIR (``**/corpus.jsonl``)."""

import argparse
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

from mathrag_gate.demo.world import GRADES

MODEL = re.compile(r"oracle-(\d{1,2}|100)")
GREATEST = 2**64
DIGEST = hashlib.sha256(json.dumps(["oracle", 1, GRADES]).encode()).hexdigest()
"""Version of the ratings, in addition to the document and the model's name: raise its number when `rating` changes."""

Truth = Mapping[str, int]
"""Grades by the text of a document in a prompt."""


def truth(folder: Path) -> dict[str, int]:
    """Read the grades of all documents in the corpora under a folder."""
    rows = (
        json.loads(line) for file in folder.glob("**/corpus.jsonl") for line in file.read_text("utf-8").splitlines()
    )
    return {write_document(row["problem"], row["text"]): GRADES[row["meta"]["kind"]] for row in rows}


def rate(document: str, grade: int, noise: float) -> int:
    """Return `grade`, or for a share `noise` of the documents one of the other ratings."""
    digest = hashlib.sha256(document.encode()).digest()
    if int.from_bytes(digest[:8]) >= noise * GREATEST:
        return grade
    others = [other for other in range(1, 6) if other != grade]
    return others[int.from_bytes(digest[8:16]) % len(others)]


def write_document(problem: str, text: str) -> str:
    """Write a document as prompts do."""
    return f"Problem: {problem}\nSolution: {text}"


def create_app(grades: Truth) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        # The document to rate is the last paragraph of a prompt of the rubric `reasoning-quality`.
        document = body["messages"][-1]["content"].rpartition("\n\n")[2].removesuffix("\nRating:")
        model = MODEL.fullmatch(body["model"])
        if model is None or document not in grades:
            raise HTTPException(
                422, "unknown model or document: use oracle-0 to oracle-100 and a document of the corpora"
            )
        given = rate(document, grades[document], int(model[1]) / 100)
        return completion(body["model"], f"[[{given}]]")

    @app.get("/info")
    async def info() -> dict[str, str]:
        return {"model_id": "tools.world.oracle", "model_sha": DIGEST, "version": "1"}

    return app


def completion(model: str, text: str) -> Response:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    chunk = {"object": "chat.completion.chunk", "id": "oracle", "created": 0, "model": model, "choices": [choice]}
    return Response(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvicorn.run(create_app(truth(options.corpora)), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
