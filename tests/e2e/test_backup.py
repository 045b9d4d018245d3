"""The commands of the documentation, run as they stand there: a backup while a job runs, restored as another stack."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from mathrag_gate.stack import postgres
from shared.settings import REPOSITORY, Workers
from tests.faults.limits import small_disk
from tests.running import JUDGED, Document, RunningStack, mathrag, running_stack

pytestmark = pytest.mark.slow

FILE = "mathrag-backup.zip"
ITEMS = 300
JOB = {"reuse": "none", "repeats": 4, "params": JUDGED}
"""Every job and every repeat computes everything anew."""
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""
BASH = shutil.which("bash") or "bash"


def documented(heading: str) -> list[str]:
    page = (REPOSITORY / "docs" / "how-to" / "scaling.md").read_text("utf-8")
    section = re.split(r"^## ", page.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def shell(commands: list[str], folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"}
    script = "set -euo pipefail\n" + "".join(commands)
    done = subprocess.run([BASH, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def half_judged(document: Document) -> bool:
    return bool(document["state"] == "running" and document["stages"]["judge"]["done"] >= ITEMS)


def search(stack: RunningStack) -> Document:
    found: Document = stack.api.post("/v1/search", json={"corpus": "world", "question": "What is the sum?"}).json()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    return tmp_path


def test_a_backup_of_a_running_stack_continues_in_another_folder(folder: Path) -> None:
    back_up, restore = documented("Backup and restore")[:2]
    with running_stack(folder / ".mathrag") as stack:
        stack.furnish(folder / "world", items=ITEMS)
        job = stack.submit("saved", **JOB)
        stack.wait(job, half_judged)
        shell([back_up], folder)
        assert_a_full_disk_is_named(folder)
        stack.assert_whole(job)
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    leave_interrupted_restore(folder / "restored")
    assert_a_wrong_dump_leaves_nothing(folder)
    try:
        shell([restore], folder)
        restored = RunningStack(folder / "restored")
        with restored.api:
            restored.assert_whole(job)
            assert restored.get(f"/v1/jobs/{job}/report")["calls_lapsed"] <= IN_FLIGHT
            assert_indexes_are_rebuilt(restored)
    finally:
        mathrag("down", "--data-dir", str(folder / "restored"))
    assert postgres.load_passwords(folder / "restored") != postgres.load_passwords(folder / ".mathrag")


def leave_interrupted_restore(data_dir: Path) -> None:
    for name in ("restoring/postgres/base", f"indexes/{'0' * 64}"):
        (data_dir / name).mkdir(parents=True)
        (data_dir / name / "part").touch()
    (data_dir / "passwords.json").write_text("{")


def assert_a_wrong_dump_leaves_nothing(folder: Path) -> None:
    wrong = folder / "wrong.zip"
    with ZipFile(folder / FILE) as whole, ZipFile(wrong, "w") as archive:
        archive.writestr("backup.json", whole.read("backup.json"))
        archive.writestr("database.dump", whole.read("database.dump")[:-1000])
    ended = mathrag("restore", str(wrong), "--data-dir", str(folder / "restored"))
    assert (ended.returncode, "`pg_restore` failed" in ended.stderr) == (6, True), ended.stderr
    assert {path.name for path in (folder / "restored").iterdir()} == {"lock", "logs"}


def assert_a_full_disk_is_named(folder: Path) -> None:
    try:
        with small_disk(folder / "disk", 1) as disk:
            ended = mathrag("backup", str(disk.folder / FILE), "--data-dir", str(folder / ".mathrag"))
            left = list(disk.folder.iterdir())
    except PermissionError:
        return  # mounting needs root
    assert (ended.returncode, "is full; no backup was written" in ended.stderr, left) == (6, True, []), ended.stderr


def assert_indexes_are_rebuilt(stack: RunningStack) -> None:
    shutil.rmtree(stack.data_dir / "indexes")
    stack.restart("retriever")
    assert search(stack)["status"] == 503
    assert "manifest.json cannot be read" in mathrag("doctor", "--data-dir", str(stack.data_dir)).stdout
    corpus = {"corpus": stack.get("/v1/corpora/world")["id"]}
    headers = {"authorization": f"Bearer {stack.addresses()['MATHRAG_SERVICE_KEY']}"}
    url = f"{stack.service_url('retriever')}/indexes"
    assert httpx2.post(url, json=corpus, headers=headers, timeout=120, trust_env=False).status_code == 200
    assert search(stack)["hits"]
