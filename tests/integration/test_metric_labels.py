"""Labels of what the judge labelled for metrics: whole replies are drawn, blindly, and they correct a metric's mean."""

from collections.abc import Callable
from typing import Any

import pytest

from shared import canonical
from shared.calls import Request
from shared.replies import Generated, Rated, Reply, Retrieved
from shared.runtime import purge
from shared.shapes import KINDS
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished

pytestmark = pytest.mark.anyio

SETS = "/v1/labels/sets"
ITEMS = 36
METRICS = {"names": ["faithfulness", "context_sufficiency", "answer_relevance"], "controls": 10}
LABELLED: list[Any] = ["support", "sufficient", "addresses"]


def number_in(question: object) -> int:
    return int(str(question).split()[2])


def sentences_of(number: int) -> list[str]:
    """What the generator writes about an item: two or three sentences."""
    return [f"It is {number} twice.", "So it is even.", f"It is {2 * number}."][: 2 + number % 2]


def judging(shown: dict[str, Any]) -> Callable[[Request], Reply]:
    """A judge that says 1 of all that a control changed, and 2 or 3 of the rest; `shown` are documents by question."""

    def answer(request: Request) -> Reply:
        question, template = str(request.values.get("question")), request.template.partition("@")[0]
        if request.role == "generate":
            shown[question] = request.values.get("context")
            return Generated(text=" ".join(sentences_of(number_in(question))))
        if template not in LABELLED:
            return scene.by_rule(request)
        number = number_in(question)
        if template == "addresses":
            real = request.values["reply"] == " ".join(sentences_of(number))
        else:
            sentence = request.values.get("sentence", "So it is even.")
            real = request.values["documents"] == shown[question] and sentence in sentences_of(number)
        if template == "support":
            return Rated(rating=(3 if sentence != "So it is even." else 2) if real else 1, text="")
        return Rated(rating=2 + number % 2 if real else 1, text="")

    return answer


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await scene.add_dataset(database, ITEMS, "many")
    for ordinal, document in enumerate(scene.DOCUMENTS):
        insert = (
            "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
            " SELECT id, :ordinal, :name, decode(:hash, 'hex') FROM corpora WHERE name = 'docs'"
        )
        await scene.run_sql(database, insert, ordinal=ordinal, name=f"d{ordinal}", hash=document.hash)
    await empty_api.job("dense", dataset="many", params={"metrics": METRICS, "context_size": 2})
    await finished(database, judging({}))
    return empty_api


async def make(api: Api, what: str, status: int = 201, **fields: Any) -> Any:
    body = {"name": what, "job": "a-job", "what": what, "size": 1000, **fields}
    reply = await api.http.post(SETS, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


async def read_tasks(api: Api, name: str, *, blind: bool = False) -> list[Any]:
    made = await api.get(f"{SETS}/{name}")
    return [await api.get(f"{SETS}/{name}/tasks/{n}", blind=blind) for n in range(1, made["tasks"] + 1)]


async def label(api: Api, name: str, say: Callable[[Any], int], most: int = 1000) -> None:
    for task in (await read_tasks(api, name))[:most]:
        body = {"value": say(task)}
        reply = await api.http.post(f"{SETS}/{name}/tasks/{task['number']}/labels", json=body)
        assert reply.status_code == 201, reply.text


async def test_what_the_judge_was_asked_of_the_answers_is_drawn_and_controls_are_not(
    api: Api, database: Database
) -> None:
    asked = "SELECT count(*) FROM calls WHERE role = 'judge' AND convert_from(request, 'UTF8') LIKE :template"
    for what in LABELLED:
        made = await make(api, what)
        tasks = await read_tasks(api, what)
        assert made["eligible"] == made["tasks"] == len(tasks)
        assert await scene.scalar(database, asked, template=f'%"{what}@%') > made["tasks"]  # type: ignore[operator]
        assert {task["item"] for task in tasks} == set(range(ITEMS))
        assert {task["system"] for task in tasks} == {2, 3}
    assert (await api.get(f"{SETS}/support"))["tasks"] == sum(len(sentences_of(n)) for n in range(ITEMS))


async def test_a_task_shows_what_the_judge_saw(api: Api) -> None:
    for what in LABELLED:
        await make(api, what)
    support = [task for task in await read_tasks(api, "support") if task["item"] == 7]
    sample = await api.get("/v1/jobs/a-job/samples/7")
    documents = {each.hash: each for each in scene.DOCUMENTS}
    shown = [documents[each] for each in sample["outcome"]["context"]]
    assert [task["content"]["sentence"] for task in support] == sentences_of(7)
    assert [task["content"].get("before") for task in support] == [
        None, "Sentence before: It is 7 twice.", "Sentence before: So it is even."
    ]  # fmt: skip
    expected = [{"document": each.hash, "problem": each.problem, "text": each.text} for each in shown]
    (sufficient,) = [task for task in await read_tasks(api, "sufficient") if task["item"] == 7]
    (addresses,) = [task for task in await read_tasks(api, "addresses") if task["item"] == 7]
    for task in (*support, sufficient):
        assert task["content"]["documents"] == expected
        assert task["content"]["question"] == "What is 7 plus 7?"
        assert "answer" not in task["content"]
    assert addresses["content"] == {"question": "What is 7 plus 7?", "answer": " ".join(sentences_of(7))}


async def test_all_sentences_of_a_reply_are_drawn_together(api: Api) -> None:
    await make(api, "support")
    whole = [(task["item"], task["content"]["sentence"]) for task in await read_tasks(api, "support")]
    assert [item for item, _ in whole] != sorted(item for item, _ in whole)
    for size in range(3, 12):
        name = f"first-{size}"
        made = await make(api, "support", name=name, size=size)
        drawn = [(task["item"], task["content"]["sentence"]) for task in await read_tasks(api, name)]
        assert drawn == whole[: len(drawn)]
        items = dict(drawn)
        assert len(drawn) == made["tasks"] == sum(len(sentences_of(item)) for item in items)
        assert len(drawn) + 3 > size  # another reply would not fit
    await make(api, "support", name="other", size=11, seed=1)
    assert [task["item"] for task in await read_tasks(api, "other")] != [item for item, _ in whole[:11]]
    assert (
        "the first reply has 2 sentences, more than the size of the set"
        in (await make(api, "support", 409, name="one", size=1))["detail"]
    )


async def test_the_judge_s_label_is_hidden(api: Api) -> None:
    for what in LABELLED:
        await make(api, what)
        for task in await read_tasks(api, what, blind=True):
            assert task["system"] is None
            assert {*task["content"]} <= {"question", "documents", "sentence", "before", "answer"}


async def test_people_and_judge_agree_as_for_other_kinds(api: Api) -> None:
    for what in LABELLED:
        made = await make(api, what)
        await label(api, what, lambda task: int(task["system"]))
        found = await api.get(f"{SETS}/{what}/agreement")
        assert found["majority"]["same"] == made["tasks"]
        assert found["majority"]["kappa"]["value"] == found["with_system"]["interval"]["value"] == 1.0
        corrected = found["corrected"]
        assert (corrected["metric"], corrected["questions"]) == (KINDS[what].metric, ITEMS)
        assert (corrected["labelled"], corrected["difference"]) == (ITEMS, 0)
        report = await api.get("/v1/jobs/a-job/report")
        mean = report["metrics"][corrected["metric"]]["mean"]["value"]
        assert corrected["judge"] == pytest.approx(mean)
        assert corrected["corrected"]["value"] == pytest.approx(mean)


async def test_labels_of_thirty_questions_correct_the_mean(api: Api) -> None:
    made = await make(api, "sufficient", size=32)
    assert made["tasks"] == 32
    await label(api, "sufficient", lambda _: 1, most=29)
    few = (await api.get(f"{SETS}/sufficient/agreement"))["corrected"]
    assert (few["labelled"], few["corrected"], few["judge"]) == (29, None, 0.5)
    assert few["words"] == (
        "The judge's mean of context_sufficiency is 0.50 over 36 questions; 29 questions are labelled completely, and a"
        " corrected mean needs 30"
    )
    tasks = await read_tasks(api, "sufficient")
    for task in tasks[29:]:
        await api.http.post(f"{SETS}/sufficient/tasks/{task['number']}/labels", json={"value": 1})
    found = (await api.get(f"{SETS}/sufficient/agreement", seed=4))["corrected"]
    difference = -sum(task["system"] == 3 for task in tasks) / 32
    assert found["difference"] == pytest.approx(difference)
    assert found["corrected"]["value"] == pytest.approx(0.5 + difference)
    assert found["corrected"]["low"] < found["corrected"]["value"] < found["corrected"]["high"]
    assert found == (await api.get(f"{SETS}/sufficient/agreement", seed=4))["corrected"]
    assert found["words"].startswith("The judge's mean of context_sufficiency is 0.50 over 36 questions; corrected by")


async def test_without_the_job_there_is_no_corrected_mean(api: Api, owner_url: str) -> None:
    await make(api, "addresses")
    before = await read_tasks(api, "addresses")
    await label(api, "addresses", lambda _: 4)
    owner = Database(owner_url, pinned=False)
    try:
        (job,) = await purge.find_jobs(owner, ["a-job"])
        await purge.purge(owner, job, "operator")
    finally:
        await owner.close()
    found = await api.get(f"{SETS}/addresses/agreement")
    assert (found["majority"]["compared"], found["corrected"]["corrected"]) == (ITEMS, None)
    assert found["corrected"]["words"].startswith("The job was purged")
    after = await read_tasks(api, "addresses")
    assert [task["content"] for task in after] == [task["content"] for task in before]


async def test_scores_without_labels_of_the_judge_are_not_drawn(api: Api, database: Database) -> None:
    judge = judging({})

    def finding_little(request: Request) -> Reply:
        if request.role == "retrieve" and canonical.digest(request)[0] % 2:
            return Retrieved(hits=())
        return judge(request)

    await scene.add_dataset(database, 5, "others", frozenset(range(5)))
    metrics = {"names": ["context_sufficiency"], "controls": 0}
    await api.job("dense", name="little", dataset="others", params={"metrics": metrics})
    await finished(database, finding_little)
    found = [await api.get(f"/v1/jobs/little/samples/{n}") for n in range(5)]
    with_documents = [n for n, each in enumerate(found) if each["outcome"]["context"]]
    assert 0 < len(with_documents) < 5
    assert (await make(api, "sufficient", job="little"))["eligible"] == len(with_documents)
    assert sorted(task["item"] for task in await read_tasks(api, "sufficient")) == with_documents
    corrected = (await api.get(f"{SETS}/sufficient/agreement"))["corrected"]
    assert corrected["questions"] == 5
    said = await make(api, "support", 409, job="little")
    assert "its judge gave no label of the metric faithfulness" in said["detail"]
    assert said["hint"] == "submit a job with --metric faithfulness"


async def test_a_compressed_passage_is_shown_and_neither_the_gold_answer_nor_the_reply(
    api: Api, database: Database
) -> None:
    shown: dict[str, Any] = {}

    def answer(request: Request) -> Reply:
        if request.role == "generate":
            shown[str(request.values["question"])] = request.values["context"]
            return Generated(text=str(2 * number_in(request.values["question"])))
        judged = request.template.partition("@")[0] in LABELLED
        return Rated(rating=3, text="") if judged else scene.by_rule(request)

    metrics = {"names": ["claims", "faithfulness"], "controls": 5}
    await api.job("enhanced", name="compressed", params={"metrics": metrics, "compress": {"ratio": 0.5}})
    await finished(database, answer)
    await make(api, "support", job="compressed")
    tasks = await read_tasks(api, "support")
    assert len(tasks) == 5
    for task in tasks:
        content = task["content"]
        assert content["sentence"] == str(2 * task["item"])
        assert isinstance(shown[content["question"]], str)
        assert content["text"] == shown[content["question"]]
        assert "documents" not in content


async def test_pages_show_a_task_and_the_corrected_mean(api: Api) -> None:
    for what, shown in (
        (
            "support",
            ["<h2>Sentence</h2>", "It is", "Document 1", "Document 2", "1, the source contradicts the sentence"],
        ),
        ("sufficient", ["Document 1", "Document 2", "3, one answer follows from it"]),
        ("addresses", ["<h2>Reply</h2>", "4, it answers all that was asked"]),
    ):
        made = await make(api, what)
        page = (await api.http.get(f"/labels/{what}")).text
        assert [words for words in ("<h2>Question</h2>", "What is", *shown) if words not in page] == []
        assert [f'data-press="{value}"' in page for value in (*made["scale"], "a")] == [True] * (len(made["scale"]) + 1)
        assert "the judge said <strong>" not in page
    assert "needs 30" in (await api.http.get("/labels/addresses/agreement")).text
    await label(api, "addresses", lambda _: 4)
    page = (await api.http.get("/labels/addresses/agreement")).text
    assert "corrected by people&#39;s labels of 36 questions it is 1.00 (95 %: 1.00 to 1.00)." in page
    assert f'<option value="{LABELLED[0]}">' in (await api.http.get("/labels")).text


async def test_an_export_names_the_sentence_and_the_reply(api: Api) -> None:
    for what in LABELLED:
        await make(api, what)
        await label(api, what, lambda task: int(task["system"]), most=1)
        line = (await api.http.get(f"{SETS}/{what}/export")).json()
        content = (await api.get(f"{SETS}/{what}/tasks/1"))["content"]
        assert (line["sentence"], line["answer"]) == (content.get("sentence"), content.get("answer"))
