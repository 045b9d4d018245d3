"""``make reproduce-world``: run every study, then write the results, the figures and the numbers in the text.

    .venv/bin/python -m world.reproduction --scale quick|full [--data-dir DIR] [--first-seed N] [--only-write]

What has been run with the same settings, seeds, parameters and models is not run again, also after an interruption.
Full results of seeds 1 and on go to docs/reference/results, and docs/reference/reproduction.md is written anew; others
stay in DIR/results.
"""

import argparse
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from mathrag.cli.output import report_errors
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from shared.pages.figures import write_all
from shared.pages.pages import rewrite_blocks
from shared.settings import REPOSITORY
from world import experiments, origin
from world.reproduction import drawing, tables
from world.reproduction.running import furnish, serve_stack, upload
from world.reproduction.studies import SCALES, Study, model_files, studies

DATA_DIR = REPOSITORY / ".mathrag" / "reproduction"
DOCS = REPOSITORY / "docs" / "reference"
RESULTS = "world.json"
DECIDED = ("orthogonal", "agreeing")
"""Settings whose first calibration is kept with all scores, for the figure."""


def main() -> None:
    """Parse the command line, run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="kept, so that the next run goes on")
    parser.add_argument("--first-seed", type=int, default=1, help="101 and on for pilots")
    parser.add_argument("--studies", nargs="*", help="only these, and nothing is written; default: all")
    parser.add_argument("--only-write", action="store_true", help="write text and figures from results that are there")
    options = parser.parse_args()
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measured = options.scale == "full" and options.first_seed == 1 and not options.studies
    out = DOCS / "results" if measured else options.data_dir / "results" / f"{options.scale}-{options.first_seed}"
    try:
        with report_errors(as_json=False):
            if not options.only_write:
                wanted = studies(SCALES[options.scale], options.first_seed)
                chosen = [study for study in wanted if not options.studies or study.name in options.studies]
                keep(run_studies(chosen, options.data_dir), out)
            if not options.studies:
                write_results(out, DOCS / "reproduction.md" if measured else None)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def run_studies(asked: list[Study], data_dir: Path) -> dict[str, Any]:
    """Run the studies that have not been run, and read all reports.

    Raises:
        Failed: a study did; the others were run all the same.
    """
    worlds = {world.name: world for study in asked for world in study.worlds}
    print(f"{len(asked)} studies in {len(worlds)} worlds; data in {data_dir}", flush=True)
    furnish(data_dir / "corpora", worlds.values())
    found: dict[str, Any] = {}
    failed: list[str] = []
    with serve_stack(data_dir) as client:
        for number, study in enumerate(asked, start=1):
            began = time.monotonic()
            print(f"[{number}/{len(asked)}] {study.name}: {study.about}", flush=True)
            try:
                upload(client, data_dir / "corpora", study.worlds)
                found[study.name] = run_study(client, study)
            except Failed as error:
                failed.append(f"{study.name} ({error.message})")
            print(f"  {study.name}: {time.monotonic() - began:.0f} s", flush=True)
        decisions = {label: decision(client, found[f"main-{label}"]) for label in DECIDED if f"main-{label}" in found}
    if failed:
        raise Failed("internal", f"these studies failed: {'; '.join(failed)}", hint="run it again: the others are done")
    return {"about": about(found), "decisions": decisions, "studies": found}


def run_study(client: Client, study: Study) -> dict[str, Any]:
    """Run one study and return the record to keep."""
    kept: dict[str, Any] = {
        "about": study.about,
        "document": study.document(),
        "worlds": [{"name": each.name, "seed": each.seed, "x": each.x} for each in study.worlds],
        **experiments.run(client, study.document(), study.name),
    }
    if study.name == "main-orthogonal":
        jobs = dict.fromkeys(row["job"] for row in kept["report"]["rows"])
        kept["endings"] = {job: client.send(api.report(job))["endings"] for job in jobs}
    return kept


def decision(client: Client, study: dict[str, Any]) -> Any:
    """Fetch the gate's decision in the study's first world, with all scores."""
    job = next(row["job"] for row in study["report"]["rows"] if row["variant"] == "gate")
    return client.send(api.report(job))["gate"]


def about(found: dict[str, Any]) -> dict[str, Any]:
    """Describe the origin of the figures; minutes are those of all studies, including earlier runs."""
    return {
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": origin.commit(),
        "machine": origin.machine(),
        "models": model_files(),
        "minutes": sum(each["seconds"] for each in found.values()) / 60,
    }


def keep(results: dict[str, Any], out: Path) -> None:
    """Write the raw results."""
    out.mkdir(parents=True, exist_ok=True)
    (out / RESULTS).write_text(json.dumps(results, indent=1) + "\n")


def write_results(out: Path, text: Path | None) -> None:
    """Draw figures and print tables from the results; update the numbers of the text if there is one."""
    if not (out / RESULTS).exists():
        raise Failed("not_found", f"{out} has no results", hint="run it without --only-write")
    results = json.loads((out / RESULTS).read_text())
    blocks = tables.blocks(results)
    print(f"figures: {', '.join(write_all(drawing.figures(results), out))}")
    if text is None:
        text = out / "world.md"
        text.write_text("\n\n".join(f"## {name}\n\n{block}" for name, block in blocks.items()) + "\n")
    else:
        text.write_text(rewrite_blocks(text.read_text(), blocks))
        print(f"written: {text}")
    print(f"results: {out}\n\n{blocks['main']}")


if __name__ == "__main__":
    main()
