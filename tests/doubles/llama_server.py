"""The server of llama.cpp that is inside xllamacpp, with as much of `llama-server`'s command line as we use.

Only the command line is doubled: pages, slots, refusals and answers are those of the library. So `make real` uses it
where no build of `llama-server` itself runs.
"""

import argparse
import os
import signal
import sys
from importlib.metadata import version

import xllamacpp

VERSION = f"version: 0 (unknown), the server inside xllamacpp {version('xllamacpp')}"


def main() -> int:
    """Serve until told to stop."""
    read = argparse.ArgumentParser(allow_abbrev=False)
    read.add_argument("--version", action="version", version=VERSION)
    for name in ("--model", "--alias", "--host"):
        read.add_argument(name, required=True)
    for name in ("--port", "--ctx-size", "--parallel", "--threads", "--cache-ram"):
        read.add_argument(name, type=int, required=True)
    for name in ("--no-context-shift", "--no-webui", "--no-cache-prompt"):
        read.add_argument(name, action="store_true")
    options, unknown = read.parse_known_args()
    if unknown:
        sys.exit(f"error: invalid argument: {unknown[0]}")
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options.model, {options.alias}
    params.n_ctx, params.n_parallel = options.ctx_size, options.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.hostnames, params.port = [options.host], options.port
    params.warmup, params.cache_ram_mib = False, options.cache_ram
    params.verbosity = 1  # errors, such as why a model cannot be loaded
    params.ctx_shift, params.cache_prompt = not options.no_context_shift, not options.no_cache_prompt
    if key := os.environ.get("LLAMA_API_KEY"):
        params.api_keys = [key]
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
