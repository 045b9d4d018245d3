"""The client: `Client().jobs.get("first")`."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, cast

from mathrag.client.connection import Connection
from mathrag.client.operations import C

if TYPE_CHECKING:
    from mathrag.client.comparison import Comparison
    from mathrag.client.groups.corpora import Corpora
    from mathrag.client.groups.datasets import Datasets
    from mathrag.client.groups.experiments import Experiments
    from mathrag.client.groups.graphs import Graphs
    from mathrag.client.groups.jobs import Comparisons, Jobs
    from mathrag.client.groups.labels import Labels
    from mathrag.client.groups.prompts import Prompts
    from mathrag.client.groups.questions import Questions
    from mathrag.client.groups.rules import Rules
    from mathrag.client.groups.service import Configurations, Devices, Models, Pipelines, Plugins, Service
    from mathrag.client.inputs import Input
    from mathrag.client.job import Job


class OperationGroups(Generic[C]):
    """Base class of both clients, with the groups of operations; `C` is the client itself.

    Each group is imported on first use. The command line uses none of them: creating the structs for all answers takes
    longer than most commands.
    """

    @property
    def _client(self) -> C:
        return cast("C", self)

    @cached_property
    def corpora(self) -> "Corpora[C]":
        """Corpora: collections of documents to search."""
        from mathrag.client.groups.corpora import Corpora

        return Corpora(self._client)

    @cached_property
    def datasets(self) -> "Datasets[C]":
        """Datasets: questions with expected answers."""
        from mathrag.client.groups.datasets import Datasets

        return Datasets(self._client)

    @cached_property
    def graphs(self) -> "Graphs[C]":
        """Knowledge graphs."""
        from mathrag.client.groups.graphs import Graphs

        return Graphs(self._client)

    @cached_property
    def rules(self) -> "Rules[C]":
        """Rule banks."""
        from mathrag.client.groups.rules import Rules

        return Rules(self._client)

    @cached_property
    def jobs(self) -> "Jobs[C]":
        """Jobs and their results."""
        from mathrag.client.groups.jobs import Jobs

        return Jobs(self._client)

    @cached_property
    def experiments(self) -> "Experiments[C]":
        """Experiments: grids of jobs."""
        from mathrag.client.groups.experiments import Experiments

        return Experiments(self._client)

    @cached_property
    def comparisons(self) -> "Comparisons[C]":
        """Comparisons of jobs."""
        from mathrag.client.groups.jobs import Comparisons

        return Comparisons(self._client)

    @cached_property
    def labels(self) -> "Labels[C]":
        """Label sets: labels by people."""
        from mathrag.client.groups.labels import Labels

        return Labels(self._client)

    @cached_property
    def questions(self) -> "Questions[C]":
        """Single questions: search, chat, and plans."""
        from mathrag.client.groups.questions import Questions

        return Questions(self._client)

    @cached_property
    def prompts(self) -> "Prompts[C]":
        """Prompts, with which models are asked for answers."""
        from mathrag.client.groups.prompts import Prompts

        return Prompts(self._client)

    @cached_property
    def models(self) -> "Models[C]":
        """Models that jobs can use."""
        from mathrag.client.groups.service import Models

        return Models(self._client)

    @cached_property
    def pipelines(self) -> "Pipelines[C]":
        """Pipelines that jobs can use."""
        from mathrag.client.groups.service import Pipelines

        return Pipelines(self._client)

    @cached_property
    def plugins(self) -> "Plugins[C]":
        """Plug-ins, which other packages add."""
        from mathrag.client.groups.service import Plugins

        return Plugins(self._client)

    @cached_property
    def devices(self) -> "Devices[C]":
        """Devices that hold models."""
        from mathrag.client.groups.service import Devices

        return Devices(self._client)

    @cached_property
    def configuration(self) -> "Configurations[C]":
        """Default parameters of jobs."""
        from mathrag.client.groups.service import Configurations

        return Configurations(self._client)

    @cached_property
    def service(self) -> "Service[C]":
        """The service itself: health, settings and running work."""
        from mathrag.client.groups.service import Service

        return Service(self._client)


class Client(Connection, OperationGroups[Connection]):
    """Connection to one server, with every operation of its API."""

    def run(
        self,
        pipeline: str,
        *,
        dataset: "Input",
        corpus: "Input | None" = None,
        grader: str | None = None,
        metrics: Sequence[str] = (),
        name: str | None = None,
        limit: int | None = None,
        repeats: int = 1,
        models: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        **params: object,
    ) -> "Job":
        """Upload new data, submit a job, and return it without waiting for its end.

        A text with a `/` is a path. Any other text is the name of a stored dataset or corpus, or of a file or folder
        in the working directory; a text that is both is an error. The server's warnings become Python warnings.

        Args:
            pipeline: name of the pipeline.
            dataset: the questions: an object of the API, a name, a file, a folder, or rows.
            corpus: the documents to search, in the same forms; None searches nothing.
            grader: name of the grader; None takes the grader of a stored dataset, otherwise `math`.
            metrics: metrics for which the judge model labels the answers, such as `["faithfulness"]`.
            name: name of the job; None derives one from the pipeline's name.
            limit: number of questions, counted from the first; None takes all.
            repeats: number of answers to each question.
            models: names of models by role, such as `{"judge": "world-judge"}`.
            metadata: your own keys and values.
            params: the pipeline's parameters, such as `candidates=5`.
        """
        from mathrag.client.inputs import store

        questions = store(self, "datasets", dataset, grader)
        documents = None if corpus is None else store(self, "corpora", corpus)
        job = self.jobs.submit(
            questions, pipeline, corpus=documents, grader=grader, metrics=metrics, name=name, limit=limit,
            repeats=repeats, models=models, metadata=metadata, params=params,
        )  # fmt: skip
        for warning in (*questions.warnings, *(documents.warnings if documents else ()), *job.view.warnings):
            warnings.warn(warning, stacklevel=2)
        return job

    def compare(
        self, *jobs: "str | Job", baseline: "str | Job | None" = None, measure: str | None = None
    ) -> "Comparison":
        """Wait until all jobs have ended, and compare them on their common questions.

        Args:
            jobs: jobs, as objects, ids or names; with a baseline, one is enough.
            baseline: the job that all others are compared with; None compares each pair.
            measure: "accuracy" (the default), "exact", "score", "answer@K", or a metric's score such as
                "faithfulness".

        Raises:
            JobFailed: a job has failed or was cancelled.
        """
        for each in jobs if baseline is None else (*jobs, baseline):
            (self.jobs.get(each) if isinstance(each, str) else each).wait()
        return self.comparisons.compare(jobs, baseline=baseline, measure=measure)
