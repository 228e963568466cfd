"""Datasets on a stand-in for the Hugging Face Hub. They were not run against the Hub itself."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import pytest
import torch
from hub_server import OTHER_TOKEN, TOKEN, Hub

NAME = "leaves.hsipack"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    server = Hub(tmp_path_factory.mktemp("hub"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def environment(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is the Hub, and this machine has no token."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


def command(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command. No token is in its output."""
    done = subprocess.run(
        [hsipack_command.PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | variables,
    )
    assert "planted7f3a" not in done.stdout + done.stderr
    assert "Signature" not in done.stdout + done.stderr
    return done


def test_samples_are_those_of_the_folder(hub: Hub, dataset: str) -> None:
    commit = hub.push("ada/leaves", Path(dataset), f"data/{NAME}")
    here = hsipack.open(dataset)
    there = hsipack.open(f"hf://datasets/ada/leaves/data/{NAME}")
    assert there.path == f"hf://datasets/ada/leaves@{commit}/data/{NAME}"
    assert (there.fingerprint, len(there)) == (here.fingerprint, len(here))
    assert hub.count("hub", "^/api/") == 1
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["labels"], other["labels"])
    with (
        hsipack.Loader(here, 5, shuffle=True, seed=1, device="cpu") as local,
        hsipack.Loader(there, 5, shuffle=True, seed=1, device="cpu") as remote,
    ):
        for one, other in zip(local, remote, strict=True):
            assert torch.equal(one["image"], other["image"])
    assert hub.count("files", "/image/c/") > 0, "shards are on the other server"


def test_an_open_dataset_stays_at_its_commit(
    hub: Hub, dataset: str, cubes: Path, tmp_path: Path
) -> None:
    newer = tmp_path / NAME
    hsipack.convert(sorted(cubes.glob("*.hdr"))[6:], newer)
    url = f"hf://datasets/ada/moving/{NAME}"
    first = hub.push("ada/moving", Path(dataset), NAME)
    ds = hsipack.open(url)
    second = hub.push("ada/moving", newer, NAME)
    assert first != second
    # A worker process opens the dataset by its path, and so reads the same commit.
    copy = pickle.loads(pickle.dumps(ds))
    assert copy.path == ds.path == f"hf://datasets/ada/moving@{first}/{NAME}"
    for number in (0, len(ds) - 1):
        assert torch.equal(copy[number]["image"], hsipack.open(dataset)[number]["image"])
    later = hsipack.open(url)
    assert later.path == f"hf://datasets/ada/moving@{second}/{NAME}"
    assert torch.equal(later[0]["image"], hsipack.open(newer)[0]["image"])
    assert not torch.equal(later[0]["image"], ds[0]["image"])
    by_commit = hsipack.open(ds.path)
    assert by_commit.fingerprint == ds.fingerprint


def test_revisions_are_branches_tags_and_pull_requests(hub: Hub, dataset: str) -> None:
    for branch in ("v1.0", "refs/pr/1"):
        commit = hub.push("ada/tagged", Path(dataset), ".", branch)
        revision = branch.replace("/", "%2F")
        ds = hsipack.open(f"hf://datasets/ada/tagged@{revision}")
        assert ds.path == f"hf://datasets/ada/tagged@{commit}"


def test_the_command_reads_there(hub: Hub, dataset: str, tmp_path: Path) -> None:
    commit = hub.push("ada/command", Path(dataset), NAME)
    url = f"hf://datasets/ada/command/{NAME}"
    report = json.loads(command("info", url, "--json", "--count-classes").stdout)
    here = json.loads(command("info", dataset, "--json", "--count-classes").stdout)
    assert report.pop("path") == f"hf://datasets/ada/command@{commit}/{NAME}"
    here.pop("path")
    assert report == here
    assert command("validate", url).returncode == 0
    read = json.loads(command("read", url, "--batch-size", "4", "--json").stdout.splitlines()[-1])
    assert read
    assert command("export", url, "--sample", "0", "-o", tmp_path / "0.npy").returncode == 0
    assert command("preview", url, "-o", tmp_path / "sheet.png").returncode == 0
    card = command("card", url, "-o", tmp_path / "card")
    assert card.returncode == 0, card.stderr
    out = tmp_path / "both.hsipack"
    merged = command("merge", dataset, url, "--prefix", "-o", out)
    assert merged.returncode == 0, merged.stderr
    assert len(hsipack.open(out)) == 2 * len(hsipack.open(dataset))


@pytest.mark.parametrize("source", ["variable", "file", "option"])
def test_the_token_goes_to_the_hub_alone(
    hub: Hub, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    name = f"ada/private-{source}"
    hub.push(name, Path(dataset), NAME)
    hub.repositories[name].access = "private"
    url = f"hf://datasets/{name}/{NAME}"
    options: dict[str, Any] = {}
    if source == "variable":
        monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\n")
    elif source == "file":
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        (tmp_path / "token").write_text(TOKEN + "\n")
    else:
        options = {"storage_options": {"token": TOKEN}}
    hub.requests.clear()
    ds = hsipack.open(url, **options)
    assert torch.equal(ds[1]["image"], hsipack.open(dataset)[1]["image"])
    assert {one.authorization for one in hub.requests if one.server == "hub"} == {f"Bearer {TOKEN}"}
    assert {one.authorization for one in hub.requests if one.server == "files"} == {None}


@pytest.mark.parametrize(
    ("path", "variables", "words"),
    [
        (
            "ada/secret/x.hsipack",
            {},
            ("status 401", "does not exist, is private, or is gated", "HF_TOKEN"),
        ),
        ("ada/secret@main/x", {"HF_TOKEN": OTHER_TOKEN}, ("status 401", "hf auth login")),
        ("ada/gated/x", {"HF_TOKEN": OTHER_TOKEN}, ("status 403", "accept its conditions")),
        ("ada/nothing/x", {"HF_TOKEN": TOKEN}, ("no dataset ada/nothing with the revision main",)),
        ("ada/secret@v9/x", {"HF_TOKEN": TOKEN}, ("no dataset ada/secret with the revision v9",)),
        ("ada/secret/y", {"HF_TOKEN": TOKEN}, ("there is no zarr.json in it", "check the URL")),
        (
            "ada/secret/x",
            {"HF_ENDPOINT": "huggingface.co"},
            ("the endpoint of the Hub", "HF_ENDPOINT"),
        ),
        ("ada/secret/x", {"HF_TOKEN": "a\nb"}, ("token of the Hub contains characters",)),
        ("ada", {}, ("names no dataset of the Hugging Face Hub", "hf://datasets/OWNER/NAME/PATH")),
        ("ada/secret@/x", {}, ("names no dataset of the Hugging Face Hub",)),
    ],
)
def test_errors_say_what_to_do(
    hub: Hub, dataset: str, path: str, variables: dict[str, str], words: tuple[str, ...]
) -> None:
    if "ada/secret" not in hub.repositories:
        hub.push("ada/secret", Path(dataset), NAME)
        hub.push("ada/gated", Path(dataset), NAME)
        hub.repositories["ada/secret"].access = "private"
        hub.repositories["ada/gated"].access = "gated"
    done = command("info", f"hf://datasets/{path}", **variables)
    assert done.returncode == 1, done.stdout
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_hub_that_does_not_answer_is_an_error(dataset: str, tmp_path: Path) -> None:
    away = Hub(tmp_path)
    endpoint = away.endpoint
    away.stop()
    done = command("info", "hf://datasets/ada/away/x", HF_ENDPOINT=endpoint)
    assert done.returncode == 1
    assert "the Hub is not available" in done.stderr


def test_nothing_is_written_there(hub: Hub, dataset: str, cubes: Path) -> None:
    hub.push("ada/closed", Path(dataset), NAME)
    url = f"hf://datasets/ada/closed/{NAME}"
    for words in (
        ("convert", cubes, "-o", "hf://datasets/ada/closed/new.hsipack"),
        ("convert", cubes, "-o", url, "--append"),
        ("export", dataset, "--sample", "0", "-o", "hf://datasets/ada/closed/0.tif"),
    ):
        done = command(*words)
        assert done.returncode == 1, words
        assert "does not write to the Hugging Face Hub" in done.stderr, done.stderr
        assert "hf upload" in done.stderr


def test_the_local_cache_keeps_what_was_fetched(hub: Hub, dataset: str, tmp_path: Path) -> None:
    url = f"hf://datasets/ada/cached/{NAME}"
    fetched = []
    # The branch moves to another commit with the same bytes: nothing is fetched again.
    for _ in range(2):
        hub.push("ada/cached", Path(dataset), NAME)
        ds = hsipack.open(url, local_cache=tmp_path / "cache")
        for sample in range(len(ds)):
            assert torch.equal(ds[sample]["image"], hsipack.open(dataset)[sample]["image"])
        assert ds.network is not None
        fetched.append(ds.network["requests"])
        del ds
    assert fetched[0] > 0
    assert fetched[1] == 0
