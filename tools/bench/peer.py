"""The same prompts through inspect_ai, a common evaluation program, with its model that answers at once."""

import asyncio
import json
import subprocess
import sys
from itertools import chain
from tempfile import TemporaryDirectory

from shared.calls import text_of
from shared.settings import REPOSITORY
from tools.bench import Rows, benchmark, in_turn
from tools.bench.jobs import repeat_job, start_fast
from tools.bench.stack import MADE_UP, seconds_of
from tools.bench.staging import prompts_of_roles, samples_of

ENVIRONMENT = REPOSITORY / ".venv" / "peer"
REQUIREMENT = REPOSITORY / "requirements" / "peer.in"
SCRIPT = """
import json, sys, time
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

# An answer with its usage: without it, the model would count tokens with a file from the network.
def answer(*_):
    output = ModelOutput.from_content("mockllm/model", "[[4]]")
    output.usage = ModelUsage(input_tokens=200, output_tokens=1, total_tokens=201)
    return output

task = Task(dataset=[Sample(input=prompt) for prompt in json.load(sys.stdin)], solver=generate())
began = time.perf_counter()
(log,) = eval(
    task, model=get_model("mockllm/model", custom_outputs=answer), log_dir=sys.argv[1], display="none", score=False,
    log_realtime=False, max_connections=256, max_samples=256,
)
print(json.dumps({"seconds": time.perf_counter() - began, "status": log.status, "error": str(log.error or "")}))
"""
"""Evaluates a list of prompts with inspect_ai. 4 to 256 connections gave the same rate within its spread."""


@benchmark
def peer(items: int = 1500, rounds: int = 2) -> Rows:
    """Compare a job with inspect_ai on the same prompts, with models that answer at once.

    inspect_ai answers each prompt as a sample, without a scorer, and writes its log; the evaluation alone is timed,
    without its imports. The job's time also includes its searches.
    """
    if reason := install():
        yield f"not measured: {reason}"
        return
    with start_fast() as running, TemporaryDirectory() as folder:
        running.upload_made_up(items)
        first = running.complete(name="first", **MADE_UP)
        roles = prompts_of_roles(asyncio.run(samples_of(running.database_url(), first["id"])))
        prompts = [text_of(each.text) for each in chain(*roles.values())]
        yield f"prompts: {len(prompts)}"
        sides = {"job": repeat_job(running, seconds_of), "inspect_ai": lambda: evaluate(prompts, folder)}
        ratios = yield from in_turn(sides, rounds)
        yield ratios["inspect_ai"]


def install() -> str:
    """Install the peer once, into an environment of its own; return why that failed, or nothing."""
    python = ENVIRONMENT / "bin" / "python"
    quiet = ("--quiet", "--no-compile", "--disable-pip-version-check")
    for command in (
        [sys.executable, "-m", "venv", str(ENVIRONMENT)],
        [str(python), "-m", "pip", "install", *quiet, "--requirement", str(REQUIREMENT)],
    ):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            return f"inspect_ai could not be installed: {found.stderr.strip().splitlines()[-1]}"
    return ""


def evaluate(prompts: list[str], folder: str) -> float:
    """Return the seconds that inspect_ai takes for the prompts."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-c", SCRIPT, folder]
    found = subprocess.run(command, input=json.dumps(prompts), capture_output=True, text=True, check=True)
    result = json.loads(found.stdout.splitlines()[-1])
    if result["status"] != "success":
        raise SystemExit(f"inspect_ai ended with {result['status']}: {result['error']}")
    return float(result["seconds"])
