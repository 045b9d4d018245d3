"""A model server that takes its time and no processor: `python -m bench.slow_model --port P --seconds 0.5`.

It answers as many prompts at once as are sent, each after the same time: what a large model on a large device looks
like from a worker.
"""

import argparse
import asyncio
from typing import Any

import uvicorn
from fastapi import FastAPI

CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "[[4]]"}}


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    uvicorn.run(application(options.seconds), port=options.port, log_level="warning")


def application(seconds: float) -> FastAPI:
    """OpenAI's chat, as much of it as is asked for."""
    app = FastAPI(openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/chat/completions")
    async def complete() -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"object": "chat.completion", "id": "1", "created": 1, "model": "slow", "choices": [CHOICE]}

    return app


if __name__ == "__main__":
    main()
