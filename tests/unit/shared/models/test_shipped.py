from mathrag_gate.demo.world import PHRASINGS, TEST_NAMES, TRAIN_CHINESE, TRAIN_TEMPLATES
from shared.models import files, shipped
from shared.settings import make_shipped_models


def test_the_shipped_models_are_known_by_their_files() -> None:
    paths = [model.path for model in make_shipped_models().values()]
    assert {files.digest(path) for path in paths if path is not None} == shipped.DIGESTS


def test_questions_of_the_made_up_world_are_known_in_every_wording_and_others_are_not() -> None:
    name = TEST_NAMES[0]
    for wordings in (TRAIN_TEMPLATES, TRAIN_CHINESE, *PHRASINGS.values()):
        for wording in wordings:
            asked = wording.format(a=3, b=7, name=name)
            assert shipped.is_about_made_up_world(asked), asked
    for other in ("What is 3 plus 7?", "What is zorlo?", "Was ist 3 mal 7?", "How many days of leave are there?"):
        assert not shipped.is_about_made_up_world(other)
