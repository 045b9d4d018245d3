"""Jobs on the real vLLM: 60 questions, and a kill."""

from collections.abc import Iterator

import pytest

from tests.real.stacks import assert_served_by, ends_whole, furnished, survives_a_kill
from tests.real.test_conformance import RECORDED, assert_holds
from tests.real.vllm import LOAD_S, NAMES, Vllm
from tests.running import RunningStack

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def answering(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    models = {name: vllm.model(name).model_dump(mode="json", exclude_unset=True) for name in NAMES}
    settings = {"models": models, "device": {"load_timeout_s": LOAD_S, "budget_mib": 5000}}
    with furnished(tmp_path_factory.mktemp("answering"), settings) as stack:
        yield stack


def test_vllm_answers_as_it_was_recorded_to(vllm: Vllm) -> None:
    program, model = vllm.folder / "bin" / "vllm", vllm.models / "world-generator"
    assert_holds(RECORDED, "real_server and vllm", VLLM=str(program), VLLM_MODEL=str(model))


def test_a_job_whose_models_are_served_by_vllm(answering: RunningStack) -> None:
    report = ends_whole(answering, "vllm")
    assert report["parse_failures"] == 0
    assert_served_by(answering, report["id"], "vllm")


def test_a_vllm_is_killed(answering: RunningStack) -> None:
    survives_a_kill(answering)
