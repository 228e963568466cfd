"""``hsipack.card``: the code of a card loads samples. Its files are tested with the command."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import hsipack
import pytest


@pytest.fixture
def folder(dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(dataset, tmp_path / "leaves.hsipack")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_lines_of_the_card_load_a_sample(folder: Path) -> None:
    ds = hsipack.open("leaves.hsipack")
    report = hsipack.card(ds)
    assert Path(report.output).resolve() == folder
    (lines,) = re.findall(
        r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(lines.splitlines()) == 3
    names: dict[str, object] = {}
    exec(lines, names)
    assert (names["image"] == ds[0]["image"]).all()


def test_arguments_are_checked(folder: Path) -> None:
    with pytest.raises(hsipack.ArgumentTypeError, match="force"):
        hsipack.card("leaves.hsipack", force=1)  # type: ignore[arg-type]
    (folder / "about.toml").write_text("titel = 'a'")
    with pytest.raises(hsipack.ConflictError, match="did you mean title"):
        hsipack.card("leaves.hsipack", about="about.toml")
    with pytest.raises(hsipack.FileError, match="nothing"):
        hsipack.card("leaves.hsipack", about="nothing.toml")
    assert not (folder / "README.md").exists()
    hsipack.card("leaves.hsipack", "card")
    with pytest.raises(hsipack.ConflictError, match=r"the file exists.*force=True"):
        hsipack.card("leaves.hsipack", "card")
