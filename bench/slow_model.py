"""Serve a slow model that uses no processor time: `python -m bench.slow_model --port P --seconds 0.5`.

It answers any number of prompts at once, each after the same time, as a large model on a large device does.
"""

import argparse
import asyncio
import json

import uvicorn
from fastapi import FastAPI, Response

CHOICE = {"index": 0, "finish_reason": "stop", "delta": {"role": "assistant", "content": "[[4]]"}}
CHUNK = {"object": "chat.completion.chunk", "id": "1", "created": 1, "model": "slow", "choices": [CHOICE]}
STREAM = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n"


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    uvicorn.run(application(options.seconds), port=options.port, log_level="warning")


def application(seconds: float) -> FastAPI:
    """Make an application with the part of OpenAI's chat API that drivers use."""
    app = FastAPI(openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/chat/completions")
    async def complete() -> Response:
        await asyncio.sleep(seconds)
        return Response(STREAM, media_type="text/event-stream")

    return app


if __name__ == "__main__":
    main()
