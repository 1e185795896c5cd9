"""The demo's folder: what a run that was cut off has left, the next one does not go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.demo import demo
from connector.errors import ConfigError

pytestmark = pytest.mark.unit


class _CutOff:
    """A broker at whose start somebody stops the demo, after it has kept something."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / "kept").touch()

    def __enter__(self) -> None:
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("cut", [True, False])
def test_a_demo_that_was_cut_off_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: bool
) -> None:
    """Half of a step cannot be gone on with; a run that came to its end can."""
    home = tmp_path / "demo"
    monkeypatch.setattr(demo, "KafkaBroker", _CutOff)
    for name in ("warehouse", "broker"):
        (home / name / "earlier").mkdir(parents=True)
    (home / "sink.properties").touch()
    for _ in range(2 if cut else 1):
        with pytest.raises(KeyboardInterrupt):
            demo.play(home, fresh=False)
    assert [(home / name / "earlier").exists() for name in ("warehouse", "broker")] == [not cut, not cut]
    assert ("starts over" in capsys.readouterr().out) == cut


def test_no_folder_of_others_is_deleted(tmp_path: Path) -> None:
    """`--fresh` is for folders of the demo."""
    (tmp_path / "warehouse").mkdir()
    with pytest.raises(ConfigError, match="is not a folder of the demo"):
        demo.play(tmp_path, fresh=True)
    assert (tmp_path / "warehouse").exists()
