"""``hsipack.view``: the server inside a program. Its responses are tested in crates/view."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

import hsipack
import numpy as np
import pytest


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def about(viewer: hsipack.Viewer) -> Any:
    return json.loads(get(viewer.url + "api/about"))


def test_a_dataset_is_shown_until_it_is_closed(dataset: str) -> None:
    ds = hsipack.open(dataset)
    with hsipack.view(ds, browser=False) as viewer:
        assert viewer.is_running
        assert about(viewer)["samples"] == len(ds)
        plane = get(viewer.url + "api/cube/1/planes?bands=3")
        stored = np.asarray(hsipack.open(dataset, output="numpy")[1]["image"])
        shown = np.frombuffer(plane, "<f4").reshape(stored.shape[1:])
        np.testing.assert_array_equal(shown, stored[3].astype(np.float32))
        assert f'src="{viewer.url}"' in viewer._repr_html_()
    assert not viewer.is_running
    assert repr(viewer) == "<hsipack.Viewer closed>"
    with pytest.raises(urllib.error.URLError):
        about(viewer)
    viewer.close()
    viewer.wait()


def test_a_child_made_by_fork_leaves_the_server_alone(dataset: str) -> None:
    viewer = hsipack.view(dataset, browser=False)
    child = os.fork()
    if child == 0:
        viewer.close()
        os._exit(0 if not viewer.is_running else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert about(viewer)["kind"] == "dataset"
    viewer.close()


def test_the_browser_is_opened_unless_it_is_unwanted(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with hsipack.view(dataset, browser=False):
        assert opened == []
    with hsipack.view(dataset) as viewer:
        assert opened == [viewer.url]


def test_what_cannot_be_looked_at_is_an_error(dataset: str, tmp_path: Any) -> None:
    with pytest.raises(hsipack.Error, match=r"no such|cannot read"):
        hsipack.view(tmp_path / "nothing", browser=False)
    with pytest.raises(hsipack.ConflictError, match="port"):
        hsipack.view(dataset, port=70000, browser=False)
    with hsipack.view(dataset, browser=False) as viewer:
        port = int(viewer.url.split(":")[2].split("/")[0])
        with pytest.raises(hsipack.ConflictError, match=f"port {port}"):
            hsipack.view(dataset, port=port, browser=False)


def training(viewer: hsipack.Viewer, question: str) -> Any:
    return json.loads(get(f"{viewer.url}api/training{question}"))


def test_what_a_loader_gives_is_shown_as_it_gives_it(dataset: str) -> None:
    augment = [hsipack.augment.RandomHorizontalFlip(p=0.5), hsipack.augment.Gain((0.5, 2.0))]
    loader = hsipack.Loader(
        dataset, 3, shuffle=True, seed=9, crop=(8, 10), split="train", bands=[4, 1, 2],
        normalize="l2", dtype="float32", device="cpu", augment=augment, output="numpy",
    )  # fmt: skip
    with loader, hsipack.view(loader, browser=False) as viewer:
        assert about(viewer)["training"]
        assert training(viewer, "?epoch=1")["batches"] == len(loader)
        loader.set_epoch(1)
        for number, batch in enumerate(loader):
            listed = training(viewer, f"/batch?epoch=1&batch={number}")
            assert [item["sample"] for item in listed["items"]] == batch["id"].tolist()
            assert [item["name"] for item in listed["items"]] == batch["name"]
            assert [item["window"] for item in listed["items"]] == batch["window"].tolist()
            for place, image in enumerate(batch["image"]):
                of = f"epoch=1&batch={number}&place={place}&bands=0,1,2"
                plane = get(f"{viewer.url}api/training/planes?{of}")
                shown = np.frombuffer(plane, "<f4").reshape(image.shape)
                np.testing.assert_array_equal(shown, image)
    joined = hsipack.Loader(hsipack.concat([dataset, dataset]), 2, device="cpu", output="numpy")
    with joined, pytest.raises(hsipack.UnsupportedError, match="several datasets"):
        hsipack.view(joined, browser=False)
