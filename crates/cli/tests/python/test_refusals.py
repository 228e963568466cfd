"""Refusals of the system: full and closed outputs, threads, memory. Names with control characters
for the terminal, and appends beside readers."""

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, class_map, partial, samples, tree, write_cubes

# Every command that prints something, with arguments. `{data}` is a dataset, `{cube}` a cube,
# `{plan}` a plan that was carried out, `{kept}` a local cache, `{new}` a path that does not exist,
# `{grown}` a dataset that gets more arrays, `{fresh}` a name that none of them has, `{gt}` the file
# of a mask or target.
SPEAKING = [
    "--help",
    "--version",
    "help",
    "convert --help",
    "convert {cube} -o {new}",
    "convert {cube} -o {new} --json",
    "convert {cube} -o {new} --dry-run",
    "convert {cube} -o {new} --dry-run --json",
    "convert {cube} -o {new} --plan {new}.json",
    "convert {cube} -o {new} --plan {new}.json --json",
    "layouts",
    "layouts cave",
    "work {plan}",
    "work {plan} --json",
    "status {plan}",
    "commit {plan}",
    "commit {plan} --json",
    "validate {data}",
    "validate {data} --json",
    "repair {data}",
    "repair {data} --json",
    "split {data} --mask gt --by blocks --shares a=0.5,b=rest --dry-run",
    "split {data} --mask gt --by pixels --shares a=0.5,b=rest --dry-run --json",
    "add {grown} --target {fresh}={gt}",
    "add {grown} --target {fresh}={gt} --json",
    "table {data} {table}",
    "table {data} {table} --json",
    "merge {data} {other} -o {new} --prefix",
    "info {data}",
    "info {data} --json",
    "info {cube}",
    "card {data} -o {new}",
    "card {data} -o {new} --json",
    "card --template",
    "preview {data} -o {new}.png",
    "view {data} --no-browser",
    "view {data} --no-browser --json",
    "export {data} --sample 0 -o {new}.npy",
    "info {data} --count-classes",
    "spectra {data} --mask mask -o {new}.parquet",
    "spectra {data} --mask mask -o {new}.csv --json",
    "read {data} --batch-size 2",
    "read {data} --batch-size 2 --json",
    "diagnose {data} --batch-size 2 --step-time 1ms --rounds 1 --time 1ms",
    "diagnose {data} --batch-size 2 --step-time 1ms --rounds 1 --time 1ms --json",
    "bench --cubes 2 --shape 8x9x4 --strategies 4 --repeats 1 --step-time 1ms --work-dir {new}",
    "simulate --loaders 7 --load-time 2s --step-time 100ms --duration 3s",
    "simulate --loaders 7 --load-time 2s --step-time 100ms --duration 3s --json",
    "tune {data} --quick --sample-size 1",
    "local-cache {kept}",
    "local-cache {kept} --check --clear --json",
    "completions bash",
]
# This command prints nothing on standard output.
OTHERS = {"man"}


@pytest.fixture(scope="module")
def folder(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset of four cubes with a mask, and a cube."""
    folder = tmp_path_factory.mktemp("refusals")
    write_cubes(folder / "cubes", 4)
    write_cubes(folder, 1)
    np.save(folder / "mask.npy", np.ones((12, 9), "u1"))
    np.save(folder / "gt.npy", class_map().astype(np.uint8))
    masks = ("--mask", folder / "mask.npy", "--mask", f"gt={folder}/gt.npy")
    hsipack.convert(folder / "cubes", *masks, out=folder / "data")
    shutil.copytree(folder / "data", folder / "grown")
    (folder / "table.csv").write_text("name,note\ncube_000,x\n")
    plan = folder / "plan.json"
    for steps in (
        ["convert", folder / "cube_000.npy", "-o", folder / "planned", "--plan", plan],
        ["work", plan],
        ["commit", plan],
    ):
        assert hsipack.run(*steps).returncode == 0
    # An empty local cache, because a dataset in a folder creates none.
    (folder / "kept").mkdir()
    (folder / "kept" / "CACHEDIR.TAG").write_text(
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# A local cache of hsipack, layout 1: copies of what lies on servers. "
        "All of it may be deleted at any time.\n"
    )
    return folder


NUMBERS = itertools.count()


def words(command: str, folder: Path, new: Path) -> list[str]:
    places: dict[str, object] = {"data": folder / "data", "new": new}
    places |= {"cube": folder / "cube_000.npy"}
    places |= {"kept": folder / "kept", "plan": folder / "plan.json"}
    places |= {"table": folder / "table.csv", "other": folder / "planned"}
    # A name that no other command of this process has used.
    places |= {"gt": folder / "gt.npy", "fresh": f"target{next(NUMBERS)}"}
    places |= {"grown": folder / "grown"}
    return [word.format(**places) for word in command.split()]


def no_panic(error: str) -> None:
    assert "panicked" not in error, error
    assert "RUST_BACKTRACE" not in error, error


def test_every_command_is_among_those_tried(hsipack: Hsipack) -> None:
    listed = hsipack.run("--help").stdout.split("Usage:")[1].split("Options:")[0]
    names = set(re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE))
    assert {"convert", "simulate", "man"} <= names
    assert names == {command.split()[0] for command in SPEAKING} & names | OTHERS


@pytest.mark.parametrize("command", SPEAKING)
@pytest.mark.parametrize("how", ["full", "closed"])
def test_an_output_that_cannot_be_written_is_said(
    hsipack: Hsipack, folder: Path, tmp_path: Path, command: str, how: str
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [hsipack.binary, *words(command, folder, tmp_path / "new")],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=(lambda: os.close(1)) if how == "closed" else None,
        )
    no_panic(done.stderr)
    assert done.returncode == 1, done.stderr
    assert "cannot write to standard output" in done.stderr
    assert ("No space left" if how == "full" else "Bad file descriptor") in done.stderr


@pytest.mark.parametrize("command", ["info {data}", "read {data} --batch-size 2 --json"])
def test_a_reader_that_goes_away_ends_it_without_a_word(
    hsipack: Hsipack, folder: Path, tmp_path: Path, command: str
) -> None:
    """As in ``hsipack info … | head -0``: SIGPIPE ends the command, like other programs."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [hsipack.binary, *words(command, folder, tmp_path / "new")],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        os.close(writer)
    assert done.returncode == -signal.SIGPIPE, done.stderr
    no_panic(done.stderr)
    assert "cannot write" not in done.stderr


# All commands except the server, which continues after it has printed its address.
ENDING = [command for command in SPEAKING if not command.startswith("view ")]


@pytest.mark.parametrize("command", [*ENDING, "info /nowhere", "read {data} --batch-size x"])
@pytest.mark.parametrize("how", ["full", "closed"])
def test_messages_that_cannot_be_written_do_no_harm(
    hsipack: Hsipack, folder: Path, tmp_path: Path, command: str, how: str
) -> None:
    """The command still does its work, and its status is correct."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [hsipack.binary, *words(command, folder, tmp_path / "new")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=(lambda: os.close(2)) if how == "closed" else None,
        )
    want = {"info /nowhere": 1, "read {data} --batch-size x": 2}.get(command, 0)
    assert done.returncode == want, done.stdout


@dataclass(frozen=True)
class Stranger:
    """A user without other processes. The limit of processes applies to it, unlike to root."""

    root: Path
    user: int

    def run(self, limit: int, *words: object) -> "subprocess.CompletedProcess[str]":
        """Runs a command in the user's own folder."""

        def become() -> None:
            os.setgroups([])
            os.setgid(self.user)
            os.setuid(self.user)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))

        return subprocess.run(
            [*map(str, words)],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            preexec_fn=become,
        )


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """A user, and a folder in which this user may read and write."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: becoming a user with a limit of processes takes root")
    root = Path(tempfile.mkdtemp())
    root.chmod(0o777)
    yield Stranger(root, 61_000 + os.getpid() % 4000)
    shutil.rmtree(root)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6])
def test_threads_that_are_refused_are_an_error_and_everything_ends(
    hsipack: Hsipack, folder: Path, stranger: Stranger, limit: int
) -> None:
    root = stranger.root
    binary = root / "hsipack"
    try:
        os.link(hsipack.binary, binary)
    except OSError:
        shutil.copy(hsipack.binary, binary)
    shutil.copytree(folder / "cubes", root / "cubes")
    shutil.copytree(folder / "data", root / "data")
    shard = next(root.glob("data/*/image/c/0/0/0/0"))
    content = bytearray(shard.read_bytes())
    content[40] ^= 0xFF
    shard.write_bytes(content)
    for path in [root, *root.rglob("*")]:
        if path != binary:
            path.chmod(0o777 if path.is_dir() else 0o666)
    if stranger.run(limit, "/bin/true").returncode != 0:
        pytest.skip("SKIPPED: another user may not run programs here")
    refused = 0
    for command in (
        f"convert cubes -o out{limit} --threads 6",
        "validate data --threads 6",
        "repair data --threads 6",
        "read data --batch-size 1 --threads 6 --epochs 1",
        "tune data --quick --sample-size 1 --cores 6",
    ):
        done = stranger.run(limit, binary, *command.split())
        no_panic(done.stderr)
        # Status 2 of `validate` means that it could not check.
        assert done.returncode in (0, 1, 2), (command, done.returncode, done.stderr)
        if "refuses to start another thread" in done.stderr:
            assert done.returncode == (2 if command.startswith("validate") else 1)
            assert " (" in done.stderr.splitlines()[-1], done.stderr
            refused += 1
    assert refused >= 4 or limit > 3
    assert not partial(root / f"out{limit}").exists()


@pytest.fixture(scope="module")
def large(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one cube of 64 MiB. Commands that are refused memory do not change it."""
    folder = tmp_path_factory.mktemp("large")
    np.save(folder / "cube.npy", np.random.default_rng(0).random((512, 512, 128), np.float32))
    hsipack.convert(folder / "cube.npy", out=folder / "data")
    return folder / "data"


# A debug build alone takes 92 MiB.
@pytest.mark.parametrize("memory", [105, 130, 200])
def test_little_address_space_is_an_error_that_names_the_limit(
    hsipack: Hsipack, large: Path, tmp_path: Path, memory: int
) -> None:
    before = tree(large)
    for command in (
        f"info {large}",
        f"validate {large} --threads 2",
        f"repair {large}",
        f"export {large} --sample 0 -o {tmp_path}/out.npy",
        f"read {large} --batch-size 1 --threads 1",
    ):
        done = hsipack.run(*command.split(), memory=memory << 20)
        no_panic(done.stderr)
        assert done.returncode in (0, 1, 2), (command, done.returncode, done.stderr)
        assert "max_map_count" not in done.stdout + done.stderr
    assert done.returncode == 1
    assert "ulimit -v" in done.stderr, done.stderr
    assert tree(large) == before


@pytest.mark.parametrize("command", ["convert", "preview", "validate", "export"])
def test_no_limit_of_the_address_space_ends_a_command_by_a_signal(
    hsipack: Hsipack, least_memory: int, tmp_path: Path, command: str
) -> None:
    """From the smallest limit with which the program starts up to sufficient ones, so that memory
    is refused at later and later places."""
    cube = tmp_path / "cube.npy"
    np.save(cube, np.random.default_rng(0).random((96, 128, 64), np.float32))
    data = tmp_path / "data"
    hsipack.convert(cube, out=data)
    enough = []
    # Every second limit until four in a row are sufficient, or all if HSIPACK_KILLS requests more.
    thorough = "HSIPACK_KILLS" in os.environ
    least = least_memory >> 20
    for mebibytes in range(least, least + 66, 1 if thorough else 2):
        new = tmp_path / str(mebibytes)
        words = {
            "convert": f"{cube} -o {new} --threads 2",
            "preview": f"{data} -o {new}.png",
            "validate": f"{data} --threads 2",
            "export": f"{data} --sample 0 -o {new}.npy",
        }[command]
        done = hsipack.run(command, *words.split(), memory=mebibytes << 20)
        which = (words, mebibytes, done.returncode, done.stdout, done.stderr)
        no_panic(done.stderr)
        # Status 1 of `validate` would mean damage.
        assert done.returncode in ((0, 2) if command == "validate" else (0, 1, 2)), which
        failed = any(line.startswith("hsipack: ") for line in done.stderr.splitlines())
        assert (done.returncode == 0) == (not failed), which
        enough.append(done.returncode == 0)
        if not thorough and enough[-4:] == [True] * 4:
            break
    assert True in enough
    assert False in enough


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://bucket/d", "AWS_SECRET_ACCESS_KEY"),
        ("gs://bucket/d", "GOOGLE_BASE_URL"),
        ("az://bucket/d", "AZURE_STORAGE_TOKEN"),
    ],
)
def test_a_cloud_s_setting_of_two_lines_is_named_and_a_blank_one_is_none(
    hsipack: Hsipack, url: str, name: str
) -> None:
    # Blank values count as not set.
    for value in ("hunter2\nhunter2", "\n"):
        own = {"AZURE_STORAGE_ACCOUNT_NAME": "account", name: value}
        done = subprocess.run(
            [hsipack.binary, "info", url],
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        no_panic(done.stderr)
        assert done.returncode == 1
        refused = f"the value of {name} contains a line feed" in done.stderr
        assert refused == ("hunter2" in value), done.stderr
        assert "hunter2" not in done.stderr


def test_more_slots_than_there_is_memory_for_are_an_error(hsipack: Hsipack, folder: Path) -> None:
    words = ("read", folder / "data", "--no-masks", "--batch-size", 2, "--slots", 60_000)
    done = hsipack.run(*words, memory=300 << 20)
    no_panic(done.stderr)
    assert done.returncode == 1, done.stderr
    assert re.search(r"60000 slots of 8 KiB take 469 MiB, but only \d+ MiB", done.stderr)
    assert "ulimit -v" in done.stderr
    assert re.search(r"--slots .*; \d+ slots fit", done.stderr)


NASTY = "a\x1b[2J\x9b1m\x7fb\u202ec"


def test_names_do_not_steer_the_terminal(hsipack: Hsipack, tmp_path: Path) -> None:
    """They are escaped in reports, errors, tables, notes and JSON. JSON keeps the meaning."""
    nasty = tmp_path / NASTY
    write_cubes(nasty, 2)
    for file in nasty.iterdir():
        file.rename(file.with_name(f"{file.stem}{NASTY}.npy"))
    (tmp_path / "table.csv").write_text(
        "name,label\n" + "".join(f'"{file.stem}",{NASTY}\n' for file in nasty.iterdir()),
        encoding="utf-8",
    )
    out = tmp_path / f"{NASTY}.hsipack"
    first = hsipack.run("convert", nasty, "-o", out, "--table", tmp_path / "table.csv")
    assert first.returncode == 0, first.stderr
    assert {sample["label"] for sample in samples(out)} == {NASTY}
    cube = next(nasty.iterdir())
    (nasty / f"broken{NASTY}.npy").write_bytes(b"no cube")
    commands: list[list[object]] = [
        ["convert", nasty, "-o", out],
        ["convert", nasty, "-o", tmp_path / "x", "--dry-run", "--skip-errors"],
        ["convert", nasty / f"no{NASTY}", "-o", tmp_path / "x"],
        ["info", out],
        ["info", cube],
        ["info", out, "--json"],
        ["validate", out],
        ["validate", tmp_path / NASTY],
        ["read", out, "--batch-size", "1", "--split", NASTY],
        ["export", out, "--sample", NASTY, "-o", tmp_path / "x.npy"],
        ["preview", out, "-o", tmp_path / f"{NASTY}.png"],
    ]
    page = tmp_path / "page.html"
    commands.append(["tune", out, "--quick", "--sample-size", "1", "--html", page])
    for command in commands:
        done = hsipack.run(*command)
        no_panic(done.stderr)
        for character in "\x1b\x9b\x7f\u202e":
            assert character not in done.stdout, (command, done.stdout)
            assert character not in done.stderr, (command, done.stderr)
    report = json.loads(hsipack.run("info", out, "--json").stdout)
    assert report["path"] == str(out)
    assert not set("\x1b\x9b\x7f\u202e") & set(page.read_text(encoding="utf-8"))


def test_reading_goes_on_while_cubes_are_appended(hsipack: Hsipack, tmp_path: Path) -> None:
    """Some commands open the dataset, and one reads many epochs, during many appends."""
    write_cubes(tmp_path / "cubes", 14)
    files = sorted((tmp_path / "cubes").iterdir())
    out = tmp_path / "out"
    size = ["--shard-size", 3 * 12 * 9 * 11 * 2, "--threads", 1]
    hsipack.convert(*files[:2], *size, out=out)
    reading = hsipack.start("read", out, "--batch-size", 1, "--epochs", 4000, "--threads", 1)
    end = threading.Event()
    failures: list[str] = []
    opened = 0

    def look() -> None:
        nonlocal opened
        while not end.is_set():
            for command in (["info", out], ["validate", out], ["read", out, "--batch-size", 2]):
                done = hsipack.run(*command)
                opened += 1
                if done.returncode != 0:
                    failures.append(done.stdout + done.stderr)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for file in files[2:]:
            done = hsipack.run("convert", file, "-o", out, "--append", *size)
            assert done.returncode == 0, done.stderr
            time.sleep(0.02)
    finally:
        end.set()
        for thread in threads:
            thread.join()
        code = reading.poll()
        reading.kill()
        _, error = reading.communicate()
    assert code in (None, 0), error
    assert not failures, failures[0]
    assert opened > 20
    assert len(samples(out)) == 14
