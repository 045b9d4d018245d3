"""Write build/site/llms.txt: what the documentation has, for language models, and every page as Markdown beside it.

    python .ci/llms.py

Sections are those of the navigation in mkdocs.yml; what a page is about is its first sentence.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
SITE = REPOSITORY / "build" / "site"
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r".+?[.](?=\s+[A-Z`]|$)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PROSE = re.compile(r"[\w`\[]")


def index() -> str:
    """Return the text of llms.txt."""
    config = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text("utf-8"))
    sections = [f"# {config['site_name']}", f"> {config['site_description']}"]
    for entry in config["nav"]:
        ((title, inner),) = entry.items()
        sections.append("\n".join([f"## {title}", "", *(f"- {_make_line(name)}" for name in _list_pages(inner))]))
    return "\n\n".join(sections) + "\n"


def _list_pages(entry: Any) -> Iterator[str]:
    """Yield the pages below an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from _list_pages(inner)


def _make_line(name: str) -> str:
    """Return the link to a page, with the first sentence above all headings."""
    title, _, text = (DOCS / name).read_text("utf-8").partition("\n")
    above, _, _ = text.partition("\n## ")
    paragraphs = (paragraph.strip() for paragraph in FENCE.sub("", above).split("\n\n"))
    first = next((each for each in paragraphs if PROSE.match(each)), "")
    about = SENTENCE.match(" ".join(LINK.sub(r"\1", first).split()))
    return f"[{title.removeprefix('# ')}]({name})" + (f": {about[0]}" if about else "")


def main() -> None:
    """Write the index, and copy what it names."""
    (SITE / "llms.txt").write_text(index(), "utf-8")
    for page in DOCS.rglob("*.md"):
        shutil.copy(page, SITE / page.relative_to(DOCS))


if __name__ == "__main__":
    main()
