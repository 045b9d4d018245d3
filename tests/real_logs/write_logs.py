"""Let a real evaluation program write its logs: `python write_logs.py inspect|lm-eval|ragas|deepeval OUT`.

The interpreter is that of an environment with the packages that `make real-logs` names; nothing of this repository is
imported. All programs ask the same eight items; the model is a server here that speaks OpenAI's API and answers from a
table. Logs are called PROGRAM-VERSION-WHAT.ext, as those in tests/unit/shared/ingest/logs are. To renew these, run a
copy of this file in a folder such as /tmp/logs-run, because tracebacks in logs name files.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class Item(NamedTuple):
    """A question with what the model says, in turn, to those who ask again; None is a reply of null."""

    id: str
    question: str
    gold: str
    replies: tuple[str | None, ...]


THOUGHT = "<think>20 * 60 is 1200.</think>\n"
ITEMS = (
    Item("eggs", "Each of Ann's 9 hens lays 2 eggs. How many are there?", "18", ("9 * 2 = 18.\n#### 18", "#### 11")),
    Item("pens", "A box holds 5 pens. Ben takes 2. How many stay?", "3", ("5 - 2 = 3, so the answer is B.", "3")),
    Item("miles", "Cy walks 4 miles on each of 3 days. How many miles?", "12", ("4 + 3 = 7.\n#### 7\nANSWER: A",)),
    Item("cups", "Di fills 6 cups and breaks 1. How many are whole?", "5", ("",)),
    Item("days", "How many days are 2 weeks?", "14", ("<think>A week has 7 days, so 2 weeks have 14, but",)),
    Item("coins", "Ed has 20 coins and gives 7 away. How many stay?", "13", (None,)),
    Item("steps", "A tower has 3 stairs of 100 steps. How many steps?", "300", ("#### 300",)),
    Item("seats", "A hall has 20 rows of 60 seats. How many?", "1,200", (f"{THOUGHT}$1,200$.\n#### 1,200\nANSWER: B",)),
)
FAILING = "steps"
"""The item at which a model called `failing` fails, and a scorer or metric of ours."""


class Model(BaseHTTPRequestHandler):
    """Answers chat completions from the table; the model called `grader` says whether a submission holds the gold."""

    asked: ClassVar[Counter[str]] = Counter()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = json.dumps(request["messages"][-1]["content"], ensure_ascii=False)
        item = next(each for each in ITEMS if each.question in prompt)
        if request["model"] == "failing" and item.id == FAILING:
            self.send(400, {"error": {"message": "This item is not for me.", "type": "invalid_request_error"}})
            return
        reply = item.replies[self.asked[item.id] % len(item.replies)]
        if request["model"] == "grader":
            submitted = prompt.partition("[Submission]: ")[2].partition(r"\n***")[0]
            reply = "I cannot say." if not submitted else "GRADE: C" if item.gold in submitted else "GRADE: P"
        else:
            self.asked[item.id] += 1
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
        head = {"id": "c", "object": "chat.completion", "created": 0, "model": request["model"]}
        self.send(200, {**head, "choices": [choice], "usage": usage})

    def send(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None: ...


def serve() -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def write_inspect(name: str, scratch: Path) -> None:
    os.environ |= {"TABLE_API_KEY": "none", "TABLE_BASE_URL": serve()}
    import inspect_ai
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import Score, accuracy, answer, choice, includes, match, model_graded_qa, scorer
    from inspect_ai.solver import generate, multiple_choice

    @scorer(metrics={"right": [accuracy()], "short": [accuracy()]})
    def failing_scorer() -> Any:
        async def score(state: Any, target: Any) -> Score:
            if state.sample_id == FAILING:
                raise RuntimeError("This item is not for me.")
            return Score(value={"right": 1, "short": 0}, answer="eighteen")

        return score

    def run(what: str, scorers: Any, order: str = "ids", model: str = "table", form: str = "eval", **more: Any) -> None:
        Model.asked.clear()
        samples = [Sample(input=each.question, target=each.gold) for each in ITEMS]
        for item, sample in zip(ITEMS, samples, strict=True):
            sample.id = item.id if order == "ids" else None
            if what == "choice":
                sample.choices, sample.target = ["1", item.gold, "2"], "B"
        dataset = MemoryDataset(samples)
        if order == "shuffled":
            dataset.shuffle(seed=1)
        solver = multiple_choice() if what == "choice" else generate()
        task = inspect_ai.Task(dataset=dataset, solver=solver, scorer=scorers, name=what)
        options = {"fail_on_error": False, "max_retries": 0, "max_connections": 1, "display": "none", **more}
        asked = f"openai-api/table/{model}"
        (log,) = inspect_ai.eval(task, model=asked, log_dir=str(scratch), log_format=form, **options)
        shutil.copy(log.location.removeprefix("file://"), f"{name}{what}.{form}")

    run("ids", [match(numeric=True), includes()], model="failing")
    run("no-ids", includes(), order="dataset's")
    run("shuffled", match(numeric=True), order="shuffled")
    run("epochs", match(numeric=True), epochs=2, sample_id=["eggs", "pens", "coins", "seats"])
    run("choice", choice())
    grader = model_graded_qa(model="openai-api/table/grader", partial_credit=True)
    run("model-graded", grader, sample_id=["eggs", "miles", "cups", "days", "seats"])
    run("answer", answer("line"), form="json", sample_id=["coins", "seats"])
    run("unscored", None)
    run("stopped", match(), model="failing", fail_on_error=True, sample_id=["eggs", FAILING, "seats"])
    run("scorer-failed", failing_scorer(), sample_id=["eggs", FAILING])


# As lm_eval's own gsm8k, without examples; its task of self-consistency has the filters of `repeats`.
GSM8K = """
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["Question:", "</s>"], do_sample: false, temperature: 0.0}
metric_list: [{metric: exact_match, ignore_case: true, regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]}]
"""
STRICT = r"{function: regex, regex_pattern: '#### (\-?[0-9\.\,]+)'}"
FLEXIBLE = r"{function: regex, group_select: -1, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)'}"
LM_EVAL_TASKS = {
    "gsm8k": f"""{GSM8K}filter_list:
  - {{name: strict-match, filter: [{STRICT}, {{function: take_first}}]}}
  - {{name: flexible-extract, filter: [{FLEXIBLE}, {{function: take_first}}]}}
""",
    "repeats": f"""{GSM8K}repeats: 2
filter_list:
  - {{name: score-first, filter: [{STRICT}, {{function: take_first}}]}}
  - {{name: maj@2, filter: [{STRICT}, {{function: majority_vote}}, {{function: take_first}}]}}
""",
    "predictions": GSM8K,
    "choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: 1
doc_to_choice: "{{options}}"
""",
}


def write_lm_eval(name: str, scratch: Path) -> None:
    address = f"model=table,base_url={serve()}/chat/completions,num_concurrent=1,max_retries=1"
    asking = ["--model", "local-chat-completions", "--model_args", address, "--apply_chat_template"]
    options = {"predictions": [*asking, "--predict_only"], "choice": ["--model", "dummy"]}
    for what, task in LM_EVAL_TASKS.items():
        Model.asked.clear()
        data = scratch / f"{what}.jsonl"
        with data.open("w") as file:  # GSM8K has no ids
            for item in ITEMS:
                document = {"question": item.question, "answer": f"It takes one step.\n#### {item.gold}"}
                others = {} if what == "gsm8k" else {"id": item.id, "options": ["1", item.gold, "2"]}
                file.write(json.dumps({**document, **others}) + "\n")
        source = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test"
        (scratch / f"{what}.yaml").write_text(f"task: my-{what}\n{source}{task}")
        command = [sys.executable, "-m", "lm_eval", "run", "--tasks", f"my-{what}", "--log_samples"]
        folders = ["--include_path", scratch, "--output_path", scratch / what]
        subprocess.run([*command, *options.get(what, asking), *folders], check=True)
        (written,) = (scratch / what).glob("**/samples_*.jsonl")
        shutil.copy(written, f"{name}{what}.jsonl")


def write_ragas(name: str, scratch: Path) -> None:
    from ragas import Dataset, EvaluationDataset, SingleTurnSample, evaluate, experiment
    from ragas.metrics import ExactMatch, NonLLMStringSimilarity
    from ragas.testset.synthesizers.testset_schema import Testset, TestsetSample

    samples = [
        SingleTurnSample(user_input=each.question, response=each.replies[0], retrieved_contexts=["A", "B's"],
                         reference=each.gold) for each in ITEMS
    ]  # fmt: skip
    asked = [each.model_copy(update={"response": None, "retrieved_contexts": None}) for each in samples]
    testset = Testset([TestsetSample(eval_sample=each, synthesizer_name="by hand") for each in asked])
    answered = EvaluationDataset(samples)
    for what, dataset in {"testset": testset, "answered": answered}.items():
        dataset.to_csv(f"{name}{what}.csv")
        dataset.to_jsonl(f"{name}{what}.jsonl")
    result = evaluate(answered, [ExactMatch(), NonLLMStringSimilarity()], raise_exceptions=False, show_progress=False)
    table = result.to_pandas()
    table.to_csv(f"{name}result.csv")
    table.to_json(f"{name}result.json")
    table.to_json(f"{name}result-records.json", orient="records")
    table.to_json(f"{name}result.jsonl", orient="records", lines=True)

    async def answer(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "score": "correct" if row["gold"] in (row["response"] or "") else "incorrect"}

    for form in ("csv", "jsonl"):
        items = Dataset("items", backend=f"local/{form}", root_dir=str(scratch))
        for each in ITEMS:
            items.append({"id": each.id, "question": each.question, "gold": each.gold, "response": each.replies[0]})
        asyncio.run(experiment()(answer).arun(items, name=form))
        shutil.copy(scratch / "experiments" / f"{form}.{form}", f"{name}experiment.{form}")


def write_deepeval(name: str, scratch: Path) -> None:
    os.chdir(scratch)
    from deepeval import evaluate
    from deepeval.dataset import EvaluationDataset
    from deepeval.evaluate import AsyncConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import BaseMetric, ExactMatchMetric
    from deepeval.test_case import LLMTestCase

    class Contains(BaseMetric):
        __name__, threshold, async_mode = "Contains", 0.5, False

        def measure(self, test_case: LLMTestCase, **_: Any) -> float:
            if "tower" in test_case.input:
                raise RuntimeError("This item is not for me.")
            self.score = float(test_case.expected_output in test_case.actual_output)
            self.success = self.score >= self.threshold
            return self.score

        def is_successful(self) -> bool:
            return self.success

    dataset = EvaluationDataset()
    for what in ("run", "run-without-names"):
        cases = [
            LLMTestCase(input=each.question, actual_output=each.replies[0], expected_output=each.gold,
                        retrieval_context=["A", "B's"], name=each.id if what == "run" else None) for each in ITEMS
        ]  # fmt: skip
        quiet = {"print_results": False, "show_indicator": False, "inspect_after_run": False}
        evaluate(cases, [Contains(), ExactMatchMetric()], display_config=DisplayConfig(results_folder=what, **quiet),
                 async_config=AsyncConfig(run_async=False), error_config=ErrorConfig(ignore_errors=True))  # fmt: skip
        (written,) = Path(what).glob("test_run_*.json")
        shutil.copy(written, f"{name}{what}.json")
    for case in cases:
        dataset.add_test_case(case)
    for form in ("json", "csv", "jsonl"):
        dataset.save_as(form, str(Path(name).parent), f"{Path(name).name}cases", include_test_cases=True)


PROGRAMS = {
    "inspect": ("inspect_ai", write_inspect), "lm-eval": ("lm_eval", write_lm_eval), "ragas": ("ragas", write_ragas),
    "deepeval": ("deepeval", write_deepeval),
}  # fmt: skip

if __name__ == "__main__":
    package, write = PROGRAMS[sys.argv[1]]
    out = Path(sys.argv[2]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        silent = {"RAGAS_DO_NOT_TRACK": "true", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES"}
        os.environ |= {"HF_HOME": folder, "HF_HUB_OFFLINE": "1", **silent}
        write(f"{out}/{package}-{version(package)}-", Path(folder))
