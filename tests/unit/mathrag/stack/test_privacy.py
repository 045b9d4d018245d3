import stat
from pathlib import Path

from mathrag.stack import privacy


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_folders_that_are_created_are_closed_to_others_and_others_stay_as_they_are(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    privacy.create_closed(tmp_path / ".mathrag" / "demo")
    others_may_list = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
    assert mode(tmp_path / ".mathrag") & others_may_list == 0
    assert mode(tmp_path / ".mathrag" / "demo") & others_may_list == 0
    assert mode(tmp_path) == 0o755
