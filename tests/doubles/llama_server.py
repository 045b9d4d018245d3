"""The server of llama.cpp itself, with as much of `llama-server`'s command line as we use: a stand-in for the binary.

Only the command line is doubled: pages, slots, refusals and answers are those of the library.
"""

import argparse
import os
import signal
import sys

import xllamacpp

VERSION = "version: 0 (unknown)"


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
    options = read.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options.model, {options.alias}
    params.n_ctx, params.n_parallel = options.ctx_size, options.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.hostnames, params.port = [options.host], options.port
    params.warmup, params.verbosity, params.cache_ram_mib = False, -1, options.cache_ram
    params.ctx_shift, params.cache_prompt = not options.no_context_shift, not options.no_cache_prompt
    params.api_keys = [os.environ["LLAMA_API_KEY"]]
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
