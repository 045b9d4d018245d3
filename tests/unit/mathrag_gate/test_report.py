"""A report's folder: whole without a server, true to its data, and harmless whatever the questions hold."""

import base64
import hashlib
import re
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.cli.output import Exit
from mathrag.errors import Invalid
from mathrag.intervals import wilson
from mathrag.report_lines import list_guidance
from mathrag_gate import report as report_module
from mathrag_gate.cli.report import make_slug
from mathrag_gate.report import FigureData, JobFiles, submit_again_command
from services.orchestrator.api.examples import make_example
from shared.pages.pages import Pages
from shared.params import Params
from tests.unit.bundles import DOCUMENT, REPORT, SAMPLE, folder, serve_file
from tests.unit.commands import Server, mathrag
from tests.unit.figures import DECISION

COMPARISON = make_example("Comparison")

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \" onmouseover='x' {{ 7*7 }} </pre>"
VOID = {"meta", "input", "br", "link", "img"}


class Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text = file.read_text("utf-8")
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.feed(self.text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def made(out: Path, samples: int = 2, comparison: Any = None, experiment: Any = None, **row: Any) -> Path:
    job = folder(out / "data" / "first-6b0c1e9e", samples, **row)
    return report_module.write(out, [job], "A report", comparison, experiment)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shown")
    made(out, comparison=COMPARISON)
    return out


@pytest.fixture(scope="module")
def templates() -> Pages:
    return Pages()


@pytest.fixture
def quick_templates(monkeypatch: pytest.MonkeyPatch, templates: Pages) -> None:
    monkeypatch.setattr(report_module, "Pages", lambda: templates)


@pytest.fixture
def only_the_overview_drawn(monkeypatch: pytest.MonkeyPatch, quick_templates: None) -> None:
    monkeypatch.setattr(FigureData, "draw_figures", lambda *_: iter(()))


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch, only_the_overview_drawn: None) -> None:
    monkeypatch.setattr(report_module, "list_figures", lambda *_: iter(()))


def pages(out: Path) -> list[Page]:
    return [Page(file) for file in sorted(out.rglob("*.html"))]


def test_every_page_is_well_formed_has_one_title_and_headings_in_order(shown: Path) -> None:
    for page in pages(shown):
        assert page.headings[0] == 1
        assert page.headings.count(1) == 1
        assert all(later - earlier <= 1 for earlier, later in zip(page.headings, page.headings[1:], strict=False))
        assert all(attributes.get("scope") for attributes in page.all("th"))
        assert page.all("html")[0]["lang"] == "en"


def test_every_link_leads_to_a_file_of_the_folder(shown: Path) -> None:
    files = sorted(shown.rglob("*.html"))
    for file in files:
        page = Page(file)
        ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
        for link in page.all("a"):
            path, _, anchor = str(link["href"]).partition("#")
            assert (file.parent / path).is_file() if path else anchor in ids, link


def test_nothing_is_loaded_and_only_our_own_script_runs(shown: Path) -> None:
    for page in pages(shown):
        policy = str(page.all("meta")[1]["content"])
        assert policy.startswith("default-src 'none';")
        for tag in ("style", "script"):
            for body in re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL):
                digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
                assert f"'sha256-{digest}'" in policy.partition(f"{tag}-src ")[2].partition(";")[0]
        assert not [
            name for _, attributes in page.elements for name in attributes if name in ("src", "style", "srcset")
        ]
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert not {tag for tag, _ in page.elements} & {"img", "link", "iframe", "object", "embed", "form", "base"}


def test_a_hostile_question_is_text_and_nothing_else(tmp_path: Path) -> None:
    report = {"name": HOSTILE, "notes": [HOSTILE], "by_subject": {HOSTILE: REPORT["accuracy"]}}
    fields = dict.fromkeys(("question", "answer", "gold", "ending", "ending_reason", "custom_id", "failure"), HOSTILE)
    job = folder(tmp_path / "data" / "x", 2, report, **fields, detail=HOSTILE)
    pair = {**COMPARISON["pairs"][0], "words": HOSTILE}
    report_module.write(tmp_path, [job], HOSTILE, {**COMPARISON, "pairs": [pair], "notes": [HOSTILE]})
    whole = pages(tmp_path)
    assert len(whole) == 3
    for page in whole:
        assert len(page.all("script")) == (3 if "samples" in page.text.partition("<title>")[2][:20].lower() else 0)
        assert "<img" not in re.sub("<script>.*?</script>", "", page.text, flags=re.DOTALL)
        assert "49" not in re.findall(r"\{\{ (\S+) \}\}", page.text)
        assert "&lt;script&gt;alert(1)" in page.text


def above_details(out: Path) -> str:
    """What stands above the details of the first page, with the tags."""
    page = (out / "index.html").read_text("utf-8").partition("<main")[2]
    above, heading, _ = page.partition('<h2 id="details">Details</h2>')
    assert heading
    return above


OTHER = "7" + str(REPORT["id"])[1:]
GATE = {"id": OTHER, "name": "gate-b"}
HYBRID = {"name": "hybrid-a", "settings": {**REPORT["settings"], "pipeline": "hybrid"}}
SIDES = [
    {**COMPARISON["jobs"][0], "name": "hybrid-a", "pipeline": "hybrid", "jobs": [REPORT["id"]]},
    {**COMPARISON["jobs"][1], "name": "gate-b", "jobs": [OTHER]},
]
PAIR = {**COMPARISON["pairs"][0], "left": "gate-b", "right": "hybrid-a", "separable": True}
TWO: dict[str, Any] = {**COMPARISON, "baseline": "hybrid-a", "jobs": SIDES, "pairs": [PAIR]}
"""The comparison of two jobs, of which the second is better."""


def two(out: Path, comparison: Any = TWO, **options: Any) -> str:
    """Write a report of two jobs that disagree on their questions, and return what stands above the details."""
    jobs = [
        folder(out / "data" / "a", 2, HYBRID, correct=False), folder(out / "data" / "b", 2, GATE, correct=True)
    ]  # fmt: skip
    report_module.write(out, jobs, options.pop("title", None), comparison, **options)
    return above_details(out)


@pytest.mark.usefixtures("without_figures")
def test_the_first_screen_has_no_job_names_and_no_terms_of_statistics(tmp_path: Path) -> None:
    above = two(tmp_path, {**TWO, "notes": ["`left_only` is 3"]})
    assert "<h1>Which gives more right answers: search by meaning and words or reordered search results?</h1>" in above
    assert "310 of 500 questions are answered right, against 306 of 500 questions with search by meaning" in above
    words = re.sub("<[^>]*>", " ", above)
    unwanted = ("hybrid-a", "gate-b", "Wilson", "Bonferroni", "McNemar", "Holm", "p =", "`", "separable", "n =")
    assert not [word for word in unwanted if word in words]
    assert not re.findall(r'aria-label="[^"]*Wilson', above)


@pytest.mark.usefixtures("without_figures")
def test_the_first_screen_has_chart_facts_cost_example_and_advice(tmp_path: Path) -> None:
    above = two(tmp_path)
    for said in (
        "<svg", "500 (dataset math-500)", "corpus math", "world-generator answers", "$0.076020",
        "Right with reordered search results, wrong with search by meaning and words", SAMPLE["question"],
        "A problem A solution:", "What to do next", "Prefer reordered search results",
    ):  # fmt: skip
        assert said in above, said
    assert above.count('<section class="card example">') == 1
    assert re.search(r'href="jobs/b/samples-001.html#s\d-0"', above)


@pytest.mark.usefixtures("without_figures")
def test_title_summary_and_labels_of_the_user_are_shown_and_escaped(tmp_path: Path) -> None:
    labels = {str(REPORT["id"]): f"{HOSTILE} a", OTHER: f"{HOSTILE} b"}
    above = two(tmp_path, title=f"{HOSTILE} title", summary=f"First line.\n{HOSTILE} summary", labels=labels)
    for text in ("a", "b", "title", "summary"):
        assert re.search(rf"&lt;script&gt;alert\(1\)&lt;/script&gt;[^<]* {text}\b", above), text
    for page in pages(tmp_path):
        assert not [attributes for tag, attributes in page.elements if tag == "img" or "onmouseover" in attributes]
        assert "alert" not in "".join(re.findall("<script>(.*?)</script>", page.text, flags=re.DOTALL))


@pytest.mark.usefixtures("without_figures")
def test_the_sentence_about_removed_documents_needs_their_names(tmp_path: Path) -> None:
    jobs = [
        folder(tmp_path / "data" / "a", 2, HYBRID, context=("r" * 64, "x")),
        folder(tmp_path / "data" / "b", 2, GATE, context=("x",)),
    ]  # fmt: skip
    relevant = {str(REPORT["id"]): {0: ["r" * 64]}, OTHER: {0: ["r" * 64]}}
    report_module.write(tmp_path, jobs, None, TWO, relevant=relevant)
    said = "Reordering removed every relevant document from the prompt for 1 of the 1 question whose prompt had one."
    assert said in above_details(tmp_path)
    assert (tmp_path / "data" / "relevant.json").is_file()
    report_module.write(tmp_path, jobs, None, TWO)
    assert "Reordering removed" not in above_details(tmp_path)


@pytest.mark.usefixtures("without_figures")
def test_the_details_keep_the_finding_with_the_names_of_the_jobs(tmp_path: Path) -> None:
    made(tmp_path / "one")
    made(tmp_path / "two", comparison={**COMPARISON, "finding": "No variant beats dense at n = 40"})
    other = folder(tmp_path / "three" / "data" / "b", 1, {"id": OTHER})
    report_module.write(tmp_path / "three", [folder(tmp_path / "three" / "data" / "a", 1), other], "A report")
    said = [
        re.findall('<p class="lead">(.*?)</p>', (tmp_path / name / "index.html").read_text())[0]
        for name in ("one", "two", "three")
    ]
    assert said == [
        "61.0 % right (56.7 to 65.2), 305 of 500", "No variant beats dense at n = 40",
        "2 jobs, which were not compared",
    ]  # fmt: skip


def test_figures_come_in_two_widths_without_a_ground_of_their_own(shown: Path) -> None:
    text = (shown / "jobs" / "first-6b0c1e9e" / "index.html").read_text("utf-8")
    drawn = re.findall(r'class="drawn chart (from|below)-medium"><svg[^>]* width="(\d+)', text)
    wide, narrow = ([int(width) for kind, width in drawn if kind == which] for which in ("from", "below"))
    assert len(wide) == len(narrow) > 0
    assert max(narrow) <= 480
    assert all(small <= large for small, large in zip(narrow, wide, strict=True))
    assert sum(narrow) < sum(wide)
    assert 'fill="white"' not in text


def test_a_sample_has_its_documents_calls_and_hashes(shown: Path) -> None:
    text = (shown / "jobs" / "first-6b0c1e9e" / "samples-001.html").read_text("utf-8")
    for said in ("I say 5.", "A solution: $1+1=2$.", "rating 4", "cafe" * 4, "world-judge", "unparsed", "shared"):
        assert said in text
    cells = re.search(r'"Rank before">2</td><td [^>]*"Rank after">1</td><td [^>]*"Quality">0.75</td>', text)
    assert cells, "second as fusion had it, first after reranking"
    assert "<dt>dense rank</dt><dd>3</dd>" in text
    assert "<dd>2.000</dd>" in text, "seconds of the calls that the sample made itself"


def test_the_report_names_models_hashes_and_how_to_do_it_again(shown: Path) -> None:
    text = (shown / "jobs" / "first-6b0c1e9e" / "index.html").read_text("utf-8")
    chain = msgspec.json.decode((shown / "data/first-6b0c1e9e/provenance.jsonl").read_bytes().splitlines()[-1])
    for said in (
        "a2d1",
        "none: its server names none",
        "77ab",
        "810c6c7",
        "math-500, d0",
        "signature 5i",
        chain["chain"],
    ):
        assert said in text
    assert "mathrag job submit" in text


@pytest.mark.usefixtures("without_figures")
def test_samples_are_pages_of_200_that_know_their_neighbours(tmp_path: Path) -> None:
    made(tmp_path, samples=401)
    folder_ = tmp_path / "jobs" / "first-6b0c1e9e"
    assert [file.name for file in sorted(folder_.glob("samples-*"))] == [f"samples-00{page}.html" for page in (1, 2, 3)]
    middle = Page(folder_ / "samples-002.html")
    assert [link["href"] for link in middle.all("a") if link.get("rel")] == ["samples-001.html", "samples-003.html"]
    assert len(middle.all("tbody")) >= 200
    assert not [link for link in Page(folder_ / "samples-003.html").all("a") if link.get("rel") == "next"]
    assert "correct 200" in (folder_ / "index.html").read_text("utf-8")


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    job = folder(tmp_path / "data" / "x", 1000, question="x" * 5000)
    tracemalloc.start()
    for _ in JobFiles(job).samples():
        pass
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_the_same_data_make_the_same_pages(shown: Path, tmp_path: Path) -> None:
    made(tmp_path, comparison=COMPARISON)
    files = [file.relative_to(shown) for file in sorted(shown.rglob("*.*")) if file.is_file()]
    assert len(files) > 20
    assert not [file for file in files if (shown / file).read_bytes() != (tmp_path / file).read_bytes()]


@pytest.mark.usefixtures("quick_templates")
def test_a_job_has_the_figures_that_it_has_something_for(tmp_path: Path) -> None:
    decision = msgspec.to_builtins(DECISION)
    agreement = {"pairs": 2, "rho": None, "low": None, "high": None, "spearman": None, "undefined": "x"}
    truth = {
        "scores": [1.0, 0.0, None, 0.5], "refuted": [0, 1, None, 1], "failures": 1, "rules": agreement,
        "judge": agreement,
    }  # fmt: skip
    job = folder(tmp_path / "data" / "x", 2, {"gate": {**decision, "truth": truth}})
    report_module.write(tmp_path, [job], "A report")
    drawn = {file.stem for file in (tmp_path / "jobs" / "x" / "figures").glob("*.svg")}
    assert drawn == {"rho", "ranks", "calibration", "calibration-verifier", "roc", "latency", "memory"}
    scored = msgspec.json.decode((tmp_path / "jobs/x/figures/roc.json").read_bytes())["rows"]
    assert [(row["scorer"], row["good"]) for row in scored] == [
        (scorer, good) for scorer in ("rules", "judge") for good in (True, False, False)
    ]


@pytest.mark.usefixtures("quick_templates")
@pytest.mark.parametrize(
    ("scores", "refuted", "drawn"),
    [
        ([None] * 4, [0, 1, None, 1], {"rho", "memory"}),
        ([1.0, 0.9, None, 0.5], [0, 0, None, 0], {"rho", "memory", "calibration-verifier"}),
    ],
)
def test_a_truth_that_tells_nothing_is_not_drawn(
    tmp_path: Path, scores: list[float | None], refuted: list[int | None], drawn: set[str]
) -> None:
    agreement = {"pairs": 2, "rho": None, "low": None, "high": None, "spearman": None, "undefined": "x"}
    truth = {"scores": scores, "refuted": refuted, "failures": 0, "rules": agreement, "judge": agreement}
    job = folder(tmp_path / "data" / "y", 0, {"gate": {**msgspec.to_builtins(DECISION), "truth": truth}})
    report_module.write(tmp_path, [job], "A report")
    assert {file.stem for file in (tmp_path / "jobs").rglob("*.svg")} == drawn


def test_quality_before_and_after_is_that_of_the_same_documents(shown: Path) -> None:
    rows = msgspec.json.decode((shown / "jobs/first-6b0c1e9e/figures/ranks.json").read_bytes())["rows"]
    assert [(row["order"], row["rank"], row["value"], row["n"]) for row in rows] == [
        ("before reranking", 1, 0.25, 2), ("before reranking", 2, 0.75, 2),
        ("after reranking", 1, 0.75, 2), ("after reranking", 2, 0.25, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("file", "change", "said"), [
    ("provenance.jsonl", lambda text: text.replace(b"completed", b"failed...", 1), "does not follow"),
    ("provenance.jsonl", lambda text: b"\n".join(text.splitlines()[:-1]) + b"\n", "ends before its last link"),
    ("provenance.jsonl", lambda text: b"\n".join(text.splitlines()[1:]) + b"\n", "does not start with the job"),
    ("results.jsonl", lambda text: b"\n".join(text.splitlines()[1:]) + b"\n", "sample 0, repeat 0"),
])  # fmt: skip
def test_data_that_were_changed_are_refused(tmp_path: Path, file: str, change: Any, said: str) -> None:
    job = folder(tmp_path / "data" / "x")
    (job / file).write_bytes(change((job / file).read_bytes()))
    with pytest.raises(Invalid, match=said):
        report_module.write(tmp_path, [job], "A report")


EXPERIMENT: dict[str, Any] = {
    "name": "grid", "notes": ["2 cells share a job"], "comparisons": {"pooled": COMPARISON, "datasets": {}},
    "rows": [
        {"dataset": "world", "variant": "gate", "seed": 0,
         "point": {"rrf_weight": rrf, "quality_weight": 1.0, "top": 5},
         "job": REPORT["id"], "job_name": "first", "state": "completed", "refused": None,
         "result": {"accuracy": REPORT["accuracy"]} if rrf else None}
        for rrf in (0.0, 1.0, 2.0)
    ],
}  # fmt: skip


@pytest.mark.usefixtures("only_the_overview_drawn")
def test_an_experiment_has_its_cells_its_comparisons_and_its_heatmap(tmp_path: Path) -> None:
    made(tmp_path, experiment=EXPERIMENT)
    text = (tmp_path / "index.html").read_text("utf-8")
    for said in ("Cells of the experiment", "Over all datasets", "not separable at n = 500", "2 cells share a job"):
        assert said in text
    cells = msgspec.json.decode((tmp_path / "figures" / "weights.json").read_bytes())
    assert "gate over world, top 5, seed 0" in cells["title"]
    assert [row["value"] for row in cells["rows"]] == [None, 0.61, 0.61]
    systems = msgspec.json.decode((tmp_path / "figures" / "accuracy.json").read_bytes())["rows"]
    assert [row["label"] for row in systems] == ["dense", "gate"]


@pytest.mark.usefixtures("only_the_overview_drawn")
def test_two_jobs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    other = "7" + str(REPORT["id"])[1:]
    jobs = [folder(tmp_path / "data" / make_slug("first", id_), 1, {"id": id_}) for id_ in (REPORT["id"], other)]
    report_module.write(tmp_path, jobs, "A report")
    rows = msgspec.json.decode((tmp_path / "figures" / "accuracy.json").read_bytes())["rows"]
    assert [row["label"] for row in rows] == ["first 6b0c1e9e", "first 7b0c1e9e"]


UNEQUAL: dict[str, Any] = {
    "accuracy": {"value": 0.25, "low": 0.142, "high": 0.402, "items": 40, "correct": 50, "graded": 80}, "items": 40,
    "endings": {"correct": 50, "logic": 30}, "settings": {**REPORT["settings"], "repeats": 5},
}  # fmt: skip
"""Ten items are right in all of five repeats, thirty were answered once and wrong."""


@pytest.mark.usefixtures("only_the_overview_drawn")
def test_a_job_of_unequal_repeats_has_one_accuracy_and_counts_its_items(tmp_path: Path) -> None:
    report_module.write(tmp_path, [folder(tmp_path / "data" / "x", 1, UNEQUAL)], "A report")
    text = (tmp_path / "index.html").read_text("utf-8")
    assert '<p class="lead">25.0 % right (14.2 to 40.2), mean of 40 items, 80 answers</p>' in text
    assert "25.0 % (14.2 to 40.2), mean of 40 items, 80 answers</td>" in text
    (row,) = msgspec.json.decode((tmp_path / "figures" / "accuracy.json").read_bytes())["rows"]
    assert (row["value"], row["n"]) == (0.25, 40)
    ended = msgspec.json.decode((tmp_path / "figures" / "endings.json").read_bytes())["rows"]
    assert {row["ending"]: (row["value"], row["low"]) for row in ended if row["count"]} == {
        "correct": (0.625, None), "logic": (0.375, None),
    }  # fmt: skip


@pytest.mark.usefixtures("only_the_overview_drawn")
def test_equal_repeats_give_endings_an_interval_over_items(tmp_path: Path) -> None:
    equal = {**UNEQUAL, "settings": {**REPORT["settings"], "repeats": 2}}
    report_module.write(tmp_path, [folder(tmp_path / "data" / "x", 1, equal)], "A report")
    ended = msgspec.json.decode((tmp_path / "figures" / "endings.json").read_bytes())["rows"]
    found = wilson(25, 40)
    assert [(row["low"], row["high"]) for row in ended if row["ending"] == "correct"] == [(found.low, found.high)]


@pytest.mark.usefixtures("without_figures")
def test_a_job_whose_answers_could_not_be_read_says_so_first(tmp_path: Path) -> None:
    said = "In 498 of 500 answers no final answer could be found, so 0.0 % says little about the system"
    changes = {"accuracy": {**REPORT["accuracy"], "value": 0.0}, "extraction": {"ok": 2, "missing": 498}}
    unreadable = folder(tmp_path / "data" / "x", 1, changes)
    other = folder(tmp_path / "data" / "y", 1, {"id": "7" + str(REPORT["id"])[1:], "name": "readable"})
    report_module.write(tmp_path, [unreadable, other], "A report")
    assert f"<h1>{said}. Choose another grader" in (tmp_path / "jobs" / "x" / "index.html").read_text("utf-8")
    text = (tmp_path / "index.html").read_text("utf-8")
    assert f"first: {said}" in text
    assert "readable: In" not in text
    report_module.write(tmp_path, [unreadable], "A report")
    above, _, below = (tmp_path / "index.html").read_text("utf-8").partition('<h2 id="details">')
    assert (above.count(said), below.count(said)) == (1, 1)


def test_a_jobs_folder_is_named_by_what_every_file_system_takes() -> None:
    assert make_slug("../../etc/<x> 数学", "0123456789") == "etc-x-01234567"
    assert make_slug("..", "0123456789") == "job-01234567"


def test_the_command_names_what_is_not_as_it_would_be_by_itself(tmp_path: Path) -> None:
    params = msgspec.to_builtins(Params())
    params["gate"]["tau"] = 1.0
    params["anchors"] = {"1": "it's $bad"}
    record = JobFiles(folder(tmp_path / "x")).record
    command = submit_again_command({"name": "first", "params": params}, record, {"judge": "world-judge"})
    assert command == (
        "mathrag job submit --name first-again --dataset math-500 --pipeline mathrag-gate --repeats 1 --reuse none "
        '--corpus math --set gate.tau=1.0 --set \'anchors={"1":"it\'"\'"\'s $bad"}\' --model judge=world-judge'
    )


def serving(at: Path) -> Any:
    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path == "/v1/comparison":
            return httpx2.Response(200, json=COMPARISON)
        if path.startswith("/v1/experiments/"):
            return httpx2.Response(200, json=EXPERIMENT)
        return serve_file(at, request)

    return answer


@pytest.mark.usefixtures("quick_templates")
def test_a_report_is_fetched_compared_and_written_by_one_command(server: Server, tmp_path: Path) -> None:
    requests = server(serving(folder(tmp_path / "served")))
    ended = mathrag("report", "bundle", "first", "--out", str(tmp_path / "out"), "--title", "Mine", "--json")
    assert ended.exit_code == Exit.DONE, ended.stderr
    said = msgspec.json.decode(ended.stdout)
    assert said["open"] == str(tmp_path / "out" / "index.html")
    index = Path(said["open"]).read_text("utf-8")
    assert "<title>Mine</title>" in index
    assert "<h1>Mine</h1>" in index
    kept = {file.name for file in (tmp_path / "out" / "data" / make_slug("first", said["jobs"][0])).iterdir()}
    assert kept == {"job.json", "report.json", "audit.json", "results.jsonl", "results.csv", "provenance.jsonl"}
    assert not [request for request in requests if request.url.path == "/v1/comparison"], "one job is not compared"
    assert {request.method for request in requests} == {"GET"}


@pytest.mark.usefixtures("without_figures")
def test_an_experiments_jobs_are_those_of_its_cells(server: Server, tmp_path: Path) -> None:
    requests = server(serving(folder(tmp_path / "served")))
    ended = mathrag("report", "bundle", "--experiment", "grid", "--out", str(tmp_path / "out"))
    assert ended.exit_code == Exit.DONE, ended.stderr
    assert len([request for request in requests if request.url.path.endswith("/provenance")]) == 1
    assert (tmp_path / "out" / "data" / "experiment.json").is_file()
    assert "1 job: open" in ended.stdout


@pytest.mark.usefixtures("without_figures")
def test_a_folder_that_holds_something_is_left_alone(server: Server, tmp_path: Path) -> None:
    requests = server(serving(folder(tmp_path / "served")))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    assert mathrag("report", "bundle", "first", "--out", str(tmp_path / "out")).exit_code == Exit.CONFLICT
    assert not requests
    assert mathrag("report", "bundle", "first", "--out", str(tmp_path / "out"), "--force").exit_code == Exit.DONE
    assert (tmp_path / "out" / "mine").read_text() == "mine"


@pytest.mark.parametrize("arguments", [(), ("first", "--experiment", "grid")])
def test_jobs_or_an_experiment_are_named(server: Server, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    requests = server(serving(tmp_path))
    assert mathrag("report", "bundle", *arguments, "--out", str(tmp_path / "out")).exit_code == Exit.USAGE
    assert not requests


# Names by the user, relevant documents, and files made by a browser.


class TwoJobs:
    """A server with two jobs over one dataset and corpus, in which `documents` have ids."""

    def __init__(self, at: Path, hash_: str = "d0", documents: int | None = 2) -> None:
        context = ((DOCUMENT, "x"), ("x",))
        self.folders = {
            report["name"]: folder(at / report["name"], 2, report, context=found)
            for report, found in zip((HYBRID, GATE), context, strict=True)
        }
        self.hash = hash_
        if documents is not None:
            for each in self.folders.values():
                count_documents(each, documents)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        listed = {
            "/v1/corpora/math/documents": [{"id": "one", "hash": DOCUMENT}, {"id": "two", "hash": "x"}],
            "/v1/datasets/math-500/items": [
                {"index": 0, "gold_documents": {"one": 2, "two": 0}}, {"index": 1, "gold_documents": None},
            ],
        }  # fmt: skip
        if path in listed:
            return httpx2.Response(200, json={"data": listed[path], "next_cursor": None})
        if path == "/v1/comparison":
            return httpx2.Response(200, json=TWO)
        if path.startswith(("/v1/datasets/", "/v1/corpora/")):
            return httpx2.Response(200, json={"hash": self.hash if "datasets" in path else "c0"})
        job = path.split("/")[3]
        name = {str(REPORT["id"]): "hybrid-a", OTHER: "gate-b"}.get(job, job)
        return serve_file(self.folders[name], request)


def count_documents(job: Path, documents: int) -> None:
    """Have the job record how many documents its index had, and recompute its chain."""
    lines = [msgspec.json.decode(line) for line in (job / "provenance.jsonl").read_bytes().splitlines()]
    record = msgspec.json.decode(lines[0]["record"])
    record["code"]["indexes"]["dense"]["documents"] = documents
    lines[0]["record"] = msgspec.json.encode(record).decode()
    hash_ = hashlib.sha256(lines[0]["record"].encode()).hexdigest()
    lines[0]["hash"] = hash_
    for line in lines[1:-1]:
        line["previous"] = hash_
        hash_ = line["hash"] = hashlib.sha256(bytes.fromhex(hash_) + line["record"].encode()).hexdigest()
    lines[-1]["chain"] = hash_
    (job / "provenance.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")


def bundle(out: Path, *options: str) -> Any:
    return mathrag("report", "bundle", "hybrid-a", "gate-b", "--out", str(out), *options)


@pytest.mark.usefixtures("without_figures")
def test_relevant_documents_are_matched_by_id_and_marked(server: Server, tmp_path: Path) -> None:
    server(TwoJobs(tmp_path / "served"))
    ended = bundle(tmp_path / "out")
    assert ended.exit_code == Exit.DONE, ended.stderr
    kept = msgspec.json.decode((tmp_path / "out" / "data" / "relevant.json").read_bytes())
    assert kept == {str(REPORT["id"]): {"0": [DOCUMENT]}, OTHER: {"0": [DOCUMENT]}}
    above = above_details(tmp_path / "out")
    assert "Reordering removed every relevant document from the prompt for 1 of the 1 question" in above
    assert "2 (corpus math)" in above


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(("hash_", "documents"), [("other", 2), ("d0", 1_000_000), ("d0", None)])
def test_relevant_documents_of_another_dataset_or_a_large_corpus_are_left_out(
    server: Server, tmp_path: Path, hash_: str, documents: int | None
) -> None:
    requests = server(TwoJobs(tmp_path / "served", hash_, documents))
    assert bundle(tmp_path / "out").exit_code == Exit.DONE
    assert not (tmp_path / "out" / "data" / "relevant.json").exists()
    assert not [request for request in requests if request.url.path.endswith(("/documents", "/items"))]


@pytest.mark.usefixtures("without_figures")
def test_names_are_given_by_a_jobs_name_or_the_beginning_of_its_id(server: Server, tmp_path: Path) -> None:
    server(TwoJobs(tmp_path / "served"))
    ended = bundle(
        tmp_path / "out", "--name", "hybrid-a=As today", "--name", f"{OTHER[:6]}=With = in it", "--summary", "Mine"
    )
    assert ended.exit_code == Exit.DONE, ended.stderr
    above = above_details(tmp_path / "out")
    assert "<h1>Which gives more right answers: As today or With = in it?</h1>" in above
    assert '<p class="summary">Mine</p>' in above


@pytest.mark.usefixtures("without_figures")
def test_a_variant_of_an_experiment_is_named_by_its_name(server: Server, tmp_path: Path) -> None:
    server(serving(folder(tmp_path / "served")))
    command = ("report", "bundle", "--experiment", "grid", "--out", str(tmp_path / "out"))
    ended = mathrag(*command, "--name", "gate=Ours", "--name", "dense=Today")
    assert ended.exit_code == Exit.DONE, ended.stderr
    assert "Which gives more right answers: Today or Ours?" in above_details(tmp_path / "out")
    ended = mathrag(*command, "--force", "--name", "first=Ours")
    assert ended.exit_code == Exit.USAGE
    assert "with one of: dense, gate" in ended.stderr


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("names", [("no-such=X",), ("hybrid-a",), ("hybrid-a= ",), ("hybrid-a=X", "hybrid-a=Y"),
                                   ("hybrid-a=X", "gate-b=X")])  # fmt: skip
def test_a_name_of_no_job_or_given_twice_is_refused(server: Server, tmp_path: Path, names: tuple[str, ...]) -> None:
    server(TwoJobs(tmp_path / "served"))
    ended = bundle(tmp_path / "out", *(option for name in names for option in ("--name", name)))
    assert ended.exit_code == Exit.USAGE
    assert f"--name {names[-1]}" in ended.stderr
    assert not (tmp_path / "out" / "index.html").exists()


BROWSER = """#!/bin/sh
echo "$@" > {log}
for each in "$@"; do
  case "$each" in --print-to-pdf=*|--screenshot=*) {act} ;; esac
done
"""


def install_browser(folder_: Path, monkeypatch: pytest.MonkeyPatch, act: str = 'echo made > "${each#*=}"') -> Path:
    """Put a program called `google-chrome` on the PATH, which writes down its arguments."""
    folder_.mkdir()
    log, program = folder_ / "log", folder_ / "google-chrome"
    program.write_text(BROWSER.format(log=log, act=act))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder_}:/nowhere")
    (folder_ / "sh").symlink_to("/bin/sh")
    return log


@pytest.mark.usefixtures("without_figures")
def test_pdf_and_png_are_made_of_the_first_screen_by_the_installed_browser(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(TwoJobs(tmp_path / "served"))
    log = install_browser(tmp_path / "bin", monkeypatch)
    for kind in ("pdf", "png"):
        ended = bundle(tmp_path / kind, f"--{kind}", "--json")
        assert ended.exit_code == Exit.DONE, ended.stderr
        made_file = tmp_path / kind / f"report.{kind}"
        assert msgspec.json.decode(ended.stdout)[kind] == str(made_file)
        assert made_file.read_text() == "made\n"
        assert log.read_text().split()[-1] == f"{(tmp_path / kind / 'index.html').as_uri()}#picture"


@pytest.mark.parametrize("option", ["--pdf", "--png"])
def test_without_a_browser_nothing_is_fetched_or_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    requests = server(TwoJobs(tmp_path / "served"))
    monkeypatch.setenv("PATH", "/nowhere")
    ended = bundle(tmp_path / "out", option)
    assert ended.exit_code == Exit.USAGE
    assert "apt install chromium" in ended.stderr
    assert not requests
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_figures")
def test_a_browser_that_writes_nothing_is_an_error_with_its_last_words(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(TwoJobs(tmp_path / "served"))
    install_browser(tmp_path / "bin", monkeypatch, "echo no display >&2")
    ended = bundle(tmp_path / "out", "--pdf")
    assert ended.exit_code not in (Exit.DONE, Exit.USAGE)
    assert "no display" in ended.stderr
    assert (tmp_path / "out" / "index.html").is_file()


# Rules as a report's lines show them.

FIGURE = {"value": 0.5, "low": 0.1, "high": 0.9, "correct": 1, "graded": 2}


def test_a_report_says_what_rules_did() -> None:
    rule = {"number": 7, "rule": "[..]", "certainty": 0.5, "samples": 3, "documents": 9, "accuracy": FIGURE}
    found = {
        "bank": "b", "used": 8, "unguided": 2, "with_rules": FIGURE, "without_rules": FIGURE, "rules": [rule] * 8,
    }  # fmt: skip
    lines = dict(list_guidance(found))
    assert str(lines["rules"]).startswith("8 of b: 50.0 %")
    assert "2 without a rule: 50.0 %" in str(lines["rules"])
    assert str(lines["rule 7"]).startswith("[..] (0.500): 3 samples, 9 documents, 50.0 %")
    assert len(list(list_guidance(found))) == 1 + 5
    assert list(list_guidance(None)) == []
