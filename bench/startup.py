"""Measure a command's start: processor time of its process, against that of importing its libraries.

    python -m bench.startup [--runs 15]

Each command runs as a process of its own, in turns with one that only imports typer, rich and the HTTP client. The
figures are medians of user and system time, children included. A server of this program answers the requests. The
first turn does not count, because it compiles bytecode.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

LIBRARIES = "import typer, rich, httpx2"
COMMANDS = (("--help",), ("--version",), ("job", "--help"), ("status",), ("job", "list"))
MOST = 1.5


class Answers(BaseHTTPRequestHandler):
    """Answers every request with an empty page."""

    def do_GET(self) -> None:
        """Send an empty page of a list."""
        body = b'{"data": [], "next_cursor": null}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def cost(command: list[str], environment: dict[str, str]) -> float:
    """Run a command; return the processor seconds of its process and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(runs: int, environment: dict[str, str]) -> dict[str, float]:
    """Return medians by command; the key "" stands for the libraries alone."""
    commands = {"": [sys.executable, "-c", LIBRARIES]}
    commands |= {" ".join(words): [sys.executable, "-m", "mathrag.cli.main", *words] for words in COMMANDS}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            times[name].append(cost(command, environment))
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def main() -> None:
    """Measure every command and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        address = f"http://127.0.0.1:{server.server_port}"
        own = {"MATHRAG_URL": address, "MATHRAG_DATA_DIR": folder, "PYTHONDONTWRITEBYTECODE": ""}
        found = measure(runs, {**os.environ, **own})
    server.shutdown()
    libraries = found.pop("")
    print(f"{LIBRARIES}: {libraries:.3f} s")
    for name, seconds in found.items():
        print(f"mathrag {name:<12} {seconds:.3f} s  {seconds / libraries:.2f} times as much (at most {MOST})")


if __name__ == "__main__":
    main()
