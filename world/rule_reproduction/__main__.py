"""``make reproduce-rules``: measure every arm on every graph, then write results, figures and the numbers in the text.

    .venv/bin/python -m world.rule_reproduction --data DIR [--out DIR] [--questions N] [--graph NAME] [--trainer PYTHON]

What has been done with the same facts, settings and models is not done again, also after an interruption. Results of
the committed settings on all graphs go to docs/reference/results, and docs/reference/rule-reproduction.md is written
anew; others stay in the folder of --out.
"""

import argparse
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import typer

from mathrag.cli.output import report_errors
from mathrag.client.errors import Failed
from shared.pages.figures import write_all
from shared.pages.pages import rewrite_blocks
from shared.settings import REPOSITORY
from world import origin
from world.release import fingerprint
from world.rule_reproduction import drawing, setting, steps, tables
from world.rule_reproduction.serving import FILE
from world.rule_reproduction.setting import Setting

OUT = REPOSITORY / ".mathrag" / "rule-reproduction"
DOCS = REPOSITORY / "docs" / "reference"
PAGE = DOCS / "rule-reproduction.md"
RESULTS = "rules.json"


def main() -> None:
    """Parse the command line, measure and write the results."""
    options = parse_arguments()
    # An end from outside must stop the stack, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = setting.read()
    names = options.graph or list(asked.graphs)
    measured = not options.questions and names == list(asked.graphs)
    if options.questions:
        few = msgspec.structs.replace(asked.tuning, questions=options.questions, examples=options.questions)
        asked = msgspec.structs.replace(asked, questions=options.questions, tuning=few)
    try:
        with report_errors(as_json=False):
            if measured and not options.only_write:
                check_committed()
            folder = DOCS / "results" if measured else options.out / "results"
            if options.only_tune:
                tune(asked, names, options)
                return
            if not options.only_write:
                keep(measure_graphs(asked, names, options), folder)
            write_results(folder, docs=measured)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kinship/ and icews14/")
    parser.add_argument("--out", type=Path, default=OUT, help="kept, so that the next run goes on")
    parser.add_argument("--questions", type=int, help="so many instead of the settings': a trial, written to --out")
    parser.add_argument("--graph", action="append", choices=list(setting.read().graphs), help="only this one: a trial")
    parser.add_argument("--trainer", default=sys.executable, help="Python with the extra `train`, for the generator")
    parser.add_argument("--only-tune", action="store_true", help="graphs, rules, questions and tuned models, no arm")
    parser.add_argument("--only-write", action="store_true", help="write text and figures from results that are there")
    return parser.parse_args()


def check_committed() -> None:
    """Raise Failed if the settings of the measured run are not committed."""
    if origin.is_changed(setting.FILE):
        problem = f"{setting.FILE.name} is not as it was committed"
        raise Failed("conflict", problem, hint="commit it first; a trial takes --questions N")


def tune(asked: Setting, names: list[str], options: argparse.Namespace) -> None:
    """Tune the models that the arms need; the next run finds them."""
    for name in names:
        run = steps.start_run(name, asked, options.data, options.out, options.trainer)
        _, tuned = steps.tune(run, {})
        print(f"{run.name}: {', '.join(map(str, tuned.places.values()))} {tuned.left_out or ''}")


def measure_graphs(asked: Setting, names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure every graph.

    Raises:
        Failed: a graph's steps did; the others' were done.
    """
    graphs, failed = {}, []
    for name in names:
        print(f"{asked.graphs[name].title}: {asked.questions:,} questions, {len(asked.arms)} arms", flush=True)
        try:
            run = steps.start_run(name, asked, options.data, options.out, options.trainer)
            graphs[name] = steps.measure_graph(run)
        except Failed as error:
            failed.append(f"{name} ({error.message})")
    if failed:
        raise Failed("internal", f"failed: {'; '.join(failed)}", hint="run it again: the rest is done")
    return {"about": about(graphs), "setting": msgspec.to_builtins(asked), "graphs": graphs}


def about(graphs: dict[str, Any]) -> dict[str, Any]:
    """Describe the origin of the figures; minutes are those of the steps of this run."""
    return {
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": origin.commit(),
        "settings_commit": origin.commit(setting.FILE),
        "settings_changed": origin.is_changed(setting.FILE),
        "code_changed": origin.is_changed(REPOSITORY),
        "machine": origin.machine(),
        "generator": fingerprint(FILE),
        "minutes": sum(sum(graph["seconds"].values()) for graph in graphs.values()) / 60,
    }


def keep(results: dict[str, Any], folder: Path) -> None:
    """Write the raw results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS).write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def write_results(folder: Path, *, docs: bool) -> None:
    """Write tables and figures from the results; those of a trial go beside its results instead of into the text."""
    if not (folder / RESULTS).exists():
        raise Failed("not_found", f"{folder} has no results", hint="run it without --only-write")
    results = json.loads((folder / RESULTS).read_text("utf-8"))
    blocks = tables.blocks(results)
    page = PAGE if docs else folder / PAGE.name
    page.write_text(rewrite_blocks(PAGE.read_text("utf-8"), blocks), "utf-8")
    drawn = write_all(drawing.figures(results), DOCS / "figures" if docs else folder / "figures")
    print(f"figures: {', '.join(drawn)}\nwritten: {page}\n\n{blocks['claims']}")


if __name__ == "__main__":
    main()
