"""A child process that serves one GGUF model: it prints its URL as one JSON line and ends at SIGTERM.

The API key comes through the environment, because a process list shows arguments.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import xllamacpp


def serve(path: Path, *, context: int, parallel: int, threads: int, cache_prompt: bool) -> xllamacpp.Server:
    """Start a server on a free loopback port; `context` is in tokens per slot.

    With `cache_prompt` each slot keeps the state of its last prompt.
    """
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context * parallel  # the slots share it
    params.n_parallel = parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.warmup = False
    params.verbosity = -1
    params.cache_ram_mib = 0
    params.cache_prompt = cache_prompt
    params.ctx_shift = False  # an overlong text must end as truncated instead of silently losing its beginning
    params.api_keys = [os.environ["MATHRAG_SERVER_KEY"]]
    return xllamacpp.Server(params)


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--no-cache-prompt", dest="cache_prompt", action="store_false")
    server = serve(**vars(parser.parse_args()))
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)  # the exit frees everything, sooner than a clean teardown


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
