"""Jobs side by side as pages: what they found, which samples changed, and the report of one."""

import re

import pytest

from shared.replies import Generated
from shared.storage import answer_table
from shared.storage.answer_table import AnswerFilters, list_answers
from shared.storage.database import Database, sql
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages import browsing
from tests.integration.pages.browsing import look, rows, text
from tests.integration.test_comparison import Answered, answering, right

pytestmark = pytest.mark.anyio


ITEMS = 40


@pytest.fixture
async def comparing_api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, ITEMS)
    return empty_api


@pytest.fixture
def answered(comparing_api: Api, database: Database, plant: Plant) -> Answered:
    return answering(comparing_api, database, plant)


async def test_the_headline_ranks_only_what_is_separable(comparing_api: Api, answered: Answered) -> None:
    """The order is by accuracy, the verdict by the corrected test.

    Of a resample nothing is gained with probability 0.9^40 = 0.0148, more than the 0.0125 of one of two intervals.
    """
    await answered(dense=range(20), hybrid=range(24), weak=range(2))
    page = await text(comparing_api, "/compare?jobs=hybrid&jobs=weak&baseline=dense")
    assert "<h1>No variant beats dense at n = 40; hybrid leads by 10 points, not separable; weak is worse" in page
    hybrid, dense, weak = rows(page)
    assert hybrid.startswith("hybrid 60.0 % (44.6 to 73.7) +10.0 (0.0 to +22.5), p = 0.125 not separable")
    assert dense.startswith("dense (baseline) 50.0 %")
    assert weak.startswith("weak 5.0 %")
    assert "p &lt; 0.001 worse 18 changed +0 −18" in weak


async def test_without_a_baseline_each_row_is_held_against_the_best(comparing_api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(38), three=range(20))
    page = await text(comparing_api, "/compare?jobs=one&jobs=two&jobs=three")
    assert "<h1>two beats all others at n = 40, by 45 points" in page
    assert "p is corrected for 3 comparisons (Holm), and so are the intervals of differences (Bonferroni)" in page
    assert [row.split(" ")[0] for row in rows(page)] == ["two", "one", "three"]
    assert "−45.0" in rows(page)[1]
    assert rows(page)[0].startswith("two (best)")
    assert page.count('<form class="controls" method="get" action="/compare/changed">') == 1


async def test_the_api_has_the_same_comparison(comparing_api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(38))
    page = await text(comparing_api, "/compare?jobs=one&baseline=two")
    assert 'href="/v1/comparison?job=two&amp;job=one&amp;baseline=two&amp;measure=accuracy"' in page
    found = await comparing_api.get("/v1/comparison", job=["two", "one"], baseline="two")
    assert f"<h1>{found['finding']}</h1>" in page


async def test_what_cannot_be_compared_is_refused_as_a_page(
    comparing_api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    await scene.add_dataset(database, 5, "others", changed=frozenset(range(5)))
    for name, dataset in (("one", "items"), ("two", "items"), ("other", "others")):
        await comparing_api.job(name=name, dataset=dataset)
    await finished(database)
    for query, status, said in (
        ("&".join(f"jobs=job-{n}" for n in range(9)), 422, "9 jobs chosen"),
        ("jobs=one&jobs=nowhere", 404, "no job &#39;nowhere&#39;"),
        ("jobs=one&jobs=%3Cscript%3E%E2%80%AE", 404, "&lt;script&gt;"),
        ("jobs=one&jobs=two&measure=beauty", 422, "`measure`"),
        ("jobs=one&jobs=other", 409, "have no measured item in common"),
    ):
        with subtests.test(query=query):
            reply = await look(comparing_api, f"/compare?{query}")
            assert reply.status_code == status
            assert said in reply.text
            assert "<script>" not in reply.text
            assert "\u202e" not in reply.text


async def test_equal_jobs_are_not_told_apart(comparing_api: Api, answered: Answered) -> None:
    await answered(one=range(20), two=range(20))
    page = await text(comparing_api, "/compare?jobs=one&jobs=two")
    assert "<h1>No two are separable at n = 40</h1>" in page
    assert "no difference on any item" in page
    assert "changed</a>" not in page


async def test_running_jobs_say_that_they_are_not_final(comparing_api: Api, database: Database, plant: Plant) -> None:
    await comparing_api.job(name="old")
    await finished(database)
    await right(plant, "old", range(20))
    await comparing_api.job(name="young", params={"generate": {"max_tokens": 99}})
    page = await text(comparing_api, "/compare?jobs=old&jobs=young")
    assert "<h1>Nothing can be compared yet" in page
    assert "&#39;young&#39; is not final" in page
    assert "nothing was graded" in rows(page)[1]


async def test_one_chooses_among_completed_jobs_of_one_dataset(comparing_api: Api, database: Database) -> None:
    await scene.add_dataset(database, 5, "single")
    for name, dataset in (("one", "items"), ("two", "items"), ("alone", "single")):
        await comparing_api.job(name=name, dataset=dataset)
    await finished(database)
    await scene.repair(database)
    await comparing_api.job(name="running")
    page = await text(comparing_api, "/compare")
    assert [name for name in ("one", "two", "alone", "running") if f'name="jobs" value="{name}"' in page] == [
        "one", "two",
    ]  # fmt: skip
    assert "<option>single</option>" in page
    assert "Only one job on single is completed" in await text(comparing_api, "/compare?dataset=single")
    assert (await look(comparing_api, "/compare?dataset=%00")).status_code == 422


async def test_compare_on_the_page_of_a_job_offers_it_with_the_others_of_its_dataset(
    comparing_api: Api, database: Database
) -> None:
    for name in ("one", "two"):
        await comparing_api.job(name=name)
    await finished(database)
    await scene.repair(database)
    await comparing_api.job(name="running")
    for name, others in (("two", ["one"]), ("running", ["two", "one"])):
        link = re.search(r'<a href="(/compare\?[^"]*)">Compare</a>', await text(comparing_api, f"/jobs/{name}"))
        assert link is not None
        page = await text(comparing_api, link[1])
        assert f"<h1>Compare {name} with another job</h1>" in page
        boxes = re.findall(r'name="jobs" value="([^"]*)"( checked)?>', page)
        assert boxes == [(name, " checked"), *((other, "") for other in others)]


async def test_without_a_job_the_page_says_how_to_submit_one(comparing_api: Api) -> None:
    assert "mathrag job submit" in await text(comparing_api, "/compare")
    assert "No completed job used this dataset" in await text(comparing_api, "/compare?dataset=unknown")


# Samples that changed between two jobs, and one of them as both answered it, as pages.

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def always(written: str) -> scene.Answer:
    return lambda request: Generated(text=written) if request.role == "generate" else scene.by_rule(request)


async def jobs(api: Api, database: Database, plant: Plant) -> None:
    await api.job("dense", name="dense")
    await api.job("closed-book", name="closed")
    await finished(database)
    await right(plant, "dense", range(4))
    await right(plant, "closed", [3, 4])


async def test_only_samples_that_changed_are_listed(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    page = await text(api, "/compare/changed?left=dense&right=closed")
    assert "<h1>dense gains 3 and loses 1 against closed</h1>" in page
    assert [row.split(" ")[0] for row in rows(page)] == ["0", "1", "2", "4"]
    assert [
        row.split(" ")[0] for row in rows(await text(api, "/compare/changed?left=dense&right=closed&only=lost"))
    ] == ["4"]
    assert 'href="/v1/comparison/samples?left=dense&amp;right=closed"' in page


async def test_long_lists_have_pages(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    page = await text(api, "/compare/changed?left=dense&right=closed&only=gained&limit=2")
    (following,) = re.findall(r'href="([^"]+)" rel="next"', page)
    rest = await text(api, following.replace("&amp;", "&"))
    assert [row.split(" ")[0] for row in rows(page) + rows(rest)] == ["0", "1", "2"]


async def test_equal_jobs_have_no_changed_sample(api: Api, database: Database, plant: Plant) -> None:
    await jobs(api, database, plant)
    await right(plant, "dense", [3, 4])
    page = await text(api, "/compare/changed?left=dense&right=closed")
    assert "have the same verdict everywhere" in page
    assert "No sample changed." in page


async def test_one_sample_stands_as_both_answered_it(api: Api, database: Database) -> None:
    for name, pipeline, said in (("dense", "dense", 2), ("closed", "closed-book", 3)):
        await api.job(pipeline, name=name)
        await scene.drain(database, scene.ScriptedExecutor(always(f"\\boxed{{{said}}}")))
    page = await text(api, "/compare/sample?left=dense&right=closed&index=1")
    assert "<h1>Sample 1: What is 1 plus 1?</h1>" in page
    assert page.count('class="verdict right"') == page.count('class="verdict wrong"') == 1
    assert "<strong>found only in this job</strong>" in page
    left = re.findall(r'<tr class="left">.*?</tr>', page, re.DOTALL)
    assert any("Therefore" in line for line in left)
    assert 'href="/jobs/dense/samples/1?repeat=0"' in page


async def test_hostile_texts_are_shown_and_do_not_act(api: Api, database: Database, plant: Plant) -> None:
    await plant("UPDATE items SET question = question || :hostile", hostile=HOSTILE.replace("\x1b", "\x07"))
    await api.job(name="one")
    await scene.drain(database, scene.ScriptedExecutor(always(f"{HOSTILE} {'x' * 1_000_000} \\boxed{{{HOSTILE}}}")))
    await api.job(name="two", reuse="none")
    await finished(database)
    await right(plant, "one", [])
    await right(plant, "two", range(5))
    for path in ("/compare/changed?left=one&right=two", "/compare/sample?left=one&right=two&index=0"):
        page = await text(api, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "U+202E" in page


async def test_what_is_not_there_is_a_page_that_says_so(
    api: Api, database: Database, plant: Plant, subtests: pytest.Subtests
) -> None:
    await jobs(api, database, plant)
    for path, status in (
        ("changed?left=dense", 422),
        ("changed?left=dense&right=dense", 422),
        ("changed?left=dense&right=nobody", 404),
        ("changed?left=dense&right=closed&only=%3Cb%3E", 422),
        ("changed?left=dense&right=closed&cursor=x", 400),
        ("sample?left=dense&right=closed", 422),
        ("sample?left=dense&right=closed&index=5", 404),
        ("sample?left=dense&right=closed&index=-1", 422),
    ):
        with subtests.test(path=path):
            reply = await look(api, f"/compare/{path}")
            assert reply.status_code == status
            assert "<h1>" in reply.text
            assert "<b>" not in reply.text


# A job's report as a page.


async def test_a_report_begins_with_what_was_found_and_says_what_it_cost(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    await finished(database)
    found = await api.get("/v1/jobs/first/report")
    page = await browsing.text(api, "/jobs/first/report")
    right = found["accuracy"]
    assert f"<h1>{100 * right['value']:.1f} % right" in page
    assert f"{right['correct']} of {right['graded']}</h1>" in page
    assert "mathrag report bundle first" in page
    assert f'href="/v1/jobs/{found["id"]}/report"' in page


async def test_a_job_that_has_not_ended_has_a_report_so_far(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    page = await browsing.text(api, "/jobs/first/report")
    assert "<h1>Nothing was graded</h1>" in page


async def test_there_is_no_report_of_an_unknown_job(api: Api) -> None:
    assert (await browsing.look(api, "/jobs/nobody/report")).status_code == 404


async def test_names_of_subjects_are_text(api: Api, database: Database) -> None:
    lines = [{"question": "What is 1+1?", "gold": "2", "subject": "<script>alert(1)</script>"}]
    assert (await api.upload("datasets", "hostile", lines)).status_code == 201
    await api.job("closed-book", name="first", dataset="hostile", corpus=None)
    await finished(database)
    page = await browsing.text(api, "/jobs/first/report")
    assert "<script>alert" not in page
    assert scene.SETTINGS.roles["generate"] in page


# The answers of several jobs, question by question.


async def test_questions_that_systems_answer_differently_come_first(
    comparing_api: Api, answered: Answered, plant: Plant
) -> None:
    await answered(one=range(38), two=range(3, 38))
    await plant(
        "UPDATE samples s SET failure = 'invalid', state = 4 FROM jobs j"
        " WHERE j.id = s.job_id AND j.name = 'one' AND s.ordinal = 39"
    )
    page = await text(comparing_api, "/compare?jobs=one&jobs=two")
    assert 'href="/compare/answers?jobs=one&amp;jobs=two"' in page
    page = await text(comparing_api, "/compare/answers?jobs=one&jobs=two")
    kinds = [re.findall("some right, some not|all wrong|all right|failed: invalid", row) for row in rows(page)]
    assert kinds[:6] == [["some right, some not"]] * 3 + [["failed: invalid"], ["all wrong"], ["all right"]]
    assert rows(page)[0].startswith("What is 0 plus 0?")
    assert 'href="/jobs/two/samples/2"' in page
    assert len(rows(page)) == ITEMS


async def test_the_table_of_answers_is_filtered_by_kind_and_expression_and_has_pages(
    comparing_api: Api, answered: Answered, database: Database
) -> None:
    await answered(one=range(40), two=range(20))
    path = "/compare/answers?jobs=one&jobs=two"
    assert len(rows(await text(comparing_api, f"{path}&kind=different"))) == 20
    assert len(rows(await text(comparing_api, f"{path}&kind=failed"))) == 0
    found = rows(await text(comparing_api, f"{path}&pattern=is+[37]+PLUS"))
    assert [row[:16] for row in found] == ["What is 3 plus 3", "What is 7 plus 7"]
    broken = await look(comparing_api, f"{path}&pattern=(")
    assert (broken.status_code, "is not a regular expression" in broken.text) == (422, True)
    first, page = await list_answers(database, ["one", "two"], AnswerFilters(), 30)
    assert ([name for _, name in first], len(page.data)) == (["one", "two"], 30)
    _, second = await list_answers(database, ["one", "two"], AnswerFilters(cursor=page.next_cursor), 30)
    assert (len(second.data), second.next_cursor) == (10, None)
    asked = {each.question for each in (*page.data, *second.data)}
    assert len(asked) == ITEMS
    other = await look(comparing_api, f"/compare/answers?jobs=one&cursor={page.next_cursor}")
    assert other.status_code == 400


async def test_pages_of_the_table_of_answers_follow_each_other_whatever_part_of_the_jobs_they_read(
    comparing_api: Api, answered: Answered, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(one=range(0, 40, 2), two=range(10))
    await scene.add_dataset(database, 12, "changed", frozenset({1, 11}))
    await comparing_api.job(name="other", dataset="changed")
    await finished(database)
    names = ["one", "two", "other"]
    whole = (await list_answers(database, names, AnswerFilters(), 100))[1].data
    assert len(whole) == ITEMS + 2
    monkeypatch.setattr(answer_table, "WINDOW", 4)
    for kind in (None, *answer_table.KINDS):
        page = (await list_answers(database, names, AnswerFilters(kind=kind), 1))[1]
        listed = [*page.data]
        while page.next_cursor and len(listed) <= len(whole):
            page = (await list_answers(database, names, AnswerFilters(kind=kind, cursor=page.next_cursor), 1))[1]
            assert len(page.data) == 1
            listed += page.data
        assert listed == [each for each in whole if kind in (None, each.kind)]


async def test_a_table_of_answers_that_takes_too_long_says_whether_the_expression_or_the_jobs_are_to_blame(
    comparing_api: Api, answered: Answered, owner: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(one=range(3), two=range(2))
    monkeypatch.setattr(answer_table, "PATIENCE", sql("SET LOCAL statement_timeout = '20ms'"))
    path = "/compare/answers?jobs=one&jobs=two"
    async with owner.transaction() as connection:
        await connection.execute(sql("LOCK TABLE outcomes IN ACCESS EXCLUSIVE MODE"))
        large = await look(comparing_api, path)
        slow = await look(comparing_api, f"{path}&pattern=plus")
    assert (large.status_code, slow.status_code) == (422, 422)
    assert "these jobs are so large" in large.text
    assert "choose fewer jobs" in large.text
    assert "pattern" not in large.text.partition("<h1>")[2].partition("</main>")[0]
    assert "searching these jobs for &#39;plus&#39; takes more than 10 s" in slow.text


async def test_jobs_over_other_questions_have_empty_places_in_the_table(
    comparing_api: Api, answered: Answered, database: Database
) -> None:
    await answered(one=range(2))
    await scene.add_dataset(database, 2, "short", frozenset({1}))
    await comparing_api.job(name="other", dataset="short")
    await finished(database)
    page = rows(await text(comparing_api, "/compare/answers?jobs=one&jobs=other"))
    assert len(page) == ITEMS + 1
    assert sum("not in this job" in row for row in page) == ITEMS
    assert (await look(comparing_api, "/compare/answers")).status_code == 422
    assert (await look(comparing_api, "/compare/answers?jobs=absent")).status_code == 404
