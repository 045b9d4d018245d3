"""The commands of the documentation, run as they stand there: a dump while a job runs, restored into another stack."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from shared.settings import REPOSITORY, Workers
from tests.running import Document, RunningStack, mathrag, running_stack

pytestmark = pytest.mark.slow

ITEMS = 300
JOB = {"reuse": "none", "repeats": 4, "params": {"gate": {"tau": 1.0}}}
"""Whatever rho is, the judge rates every candidate; and every job and every repeat computes everything anew."""
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""
BASH = shutil.which("bash") or "bash"


def documented(heading: str) -> list[str]:
    """The blocks of commands under a heading of docs/how-to/scaling.md."""
    page = (REPOSITORY / "docs" / "how-to" / "scaling.md").read_text("utf-8")
    section = re.split(r"^## ", page.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def shell(commands: list[str], folder: Path) -> None:
    """Run blocks in one shell, as somebody who pastes them."""
    environment = {**os.environ, "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"}
    script = "set -euo pipefail\n" + "".join(commands)
    done = subprocess.run([BASH, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def half_judged(document: Document) -> bool:
    """In the middle of the judge's stage."""
    return bool(document["state"] == "running" and document["stages"]["judge"]["done"] >= ITEMS)


def search(stack: RunningStack) -> Document:
    """One question to the restored corpus."""
    found: Document = stack.api.post("/v1/search", json={"corpus": "world", "question": "What is the sum?"}).json()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory like that of a user: an environment, and a data directory."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    return tmp_path


def test_a_dump_of_a_running_stack_goes_on_in_another_one(folder: Path) -> None:
    """The job that was in flight is completed twice: here, and from the dump. Missing indexes are named and rebuilt."""
    dump, restore = documented("Backup and restore")[:2]
    with running_stack(folder / ".mathrag") as stack:
        stack.furnish(folder / "world", items=ITEMS)
        job = stack.submit("dumped", **JOB)
        stack.wait(job, half_judged)
        shell([dump], folder)
        stack.assert_whole(job)
    try:
        shell([dump.replace("pg_dump", ": pg_dump"), restore], folder)
        restored = RunningStack(folder / "restored")
        with restored.api:
            restored.assert_whole(job)
            assert restored.get(f"/v1/jobs/{job}/report")["calls_lapsed"] <= IN_FLIGHT
            assert_indexes_are_rebuilt(restored)
    finally:
        mathrag("down", "--data-dir", str(folder / "restored"))


def assert_indexes_are_rebuilt(stack: RunningStack) -> None:
    """Without their files a search fails and the doctor names them; the retriever builds what is missing."""
    shutil.rmtree(stack.data_dir / "indexes")
    stack.restart("retriever")
    assert search(stack)["status"] == 503
    assert "manifest.json cannot be read" in mathrag("doctor", "--data-dir", str(stack.data_dir)).stdout
    corpus = {"corpus": stack.get("/v1/corpora/world")["id"]}
    headers = {"authorization": f"Bearer {stack.addresses()['MATHRAG_SERVICE_KEY']}"}
    url = f"{stack.service_url('retriever')}/indexes"
    assert httpx2.post(url, json=corpus, headers=headers, timeout=120, trust_env=False).status_code == 200
    assert search(stack)["hits"]
