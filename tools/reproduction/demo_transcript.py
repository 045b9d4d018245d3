"""Write the transcript in docs/reference/demo.md: `mathrag demo | python -m tools.reproduction.demo_transcript`.

The output of the demo is passed through; at its end the page is rewritten.
"""

import sys
from datetime import UTC, datetime

from shared.pages.pages import rewrite_blocks
from shared.settings import REPOSITORY
from tools.reproduction import pages

PAGE = REPOSITORY / "docs" / "reference" / "demo.md"


def main() -> None:
    """Read the transcript from standard input, and write the page."""
    lines = []
    for line in sys.stdin:
        print(line, end="", flush=True)
        lines.append(line.rstrip().replace(f"{REPOSITORY}/", ""))
    if not any(line.startswith("The demo took") for line in lines):
        sys.exit("the demo ended early, and the page is unchanged: run it again")
    head = f"Seed 1, {datetime.now(UTC):%Y-%m-%d}, commit {pages.commit()}:"
    transcript = "\n".join(lines).strip()
    computed = {"transcript": f"{head}\n\n```text\n{transcript}\n```"}
    PAGE.write_text(rewrite_blocks(PAGE.read_text("utf-8"), computed), "utf-8")


if __name__ == "__main__":
    main()
