"""`python -m services.retriever --port P`: serve on the loopback interface."""

import argparse

import uvicorn

from services.retriever.app import create_app
from shared import settings


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(create_app(settings.load()), host=arguments.host, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
