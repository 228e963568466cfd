"""Levels of an hsipack.Loader."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from hsipack import _hsipack, _ranks, _torch, crops
from hsipack._arrays import given, native
from hsipack.dataset import mask_key
from hsipack.diagnosis._levels import Kept, Source, Stream, cores
from hsipack.loader import Batch, Loader

# The size in bytes of a cache that is to hold everything.
ALL = 1 << 62
# A cache counts as full after this many batches, besides those that were ready, add nothing to it.
FULL = 12


class LoaderLevels:
    """Levels of an hsipack.Loader. Similar loaders are made for its levels."""

    actions: tuple[str, ...] = ("cache", "threads", "without", "crop")

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._place = dataclasses.replace(loader._settle(), source=_ranks.GIVEN)
        self._settings = dict(loader._settings)
        self._read, counts, facts = loader._native.workload()
        self._known: dict[str, Any] = json.loads(facts)
        self._samples = self._subset(counts)
        chosen = set(self._samples)
        windows = zip(self._read, counts, strict=True)
        self._items = sum(count for one, count in windows if one in chosen)
        self._report = report = loader.report()
        self._pipeline: str | None = self._settings["pipeline"]
        self.batch_size: int | None = self._settings["batch_size"]
        self._copies = self._settings["device"] is not None or bool(self._settings["emulated_bus"])
        self._keeper = self._like(pipeline=None, slots=2)
        self._raw = next(iter(self._keeper))
        self.names = ["step"]
        self.names += ["augment"] if self._pipeline else []
        self.names += ["copy" if self._copies else "prepare"]
        # A GPU that decodes gets chunks as they are stored.
        device_decodes = self._settings["decode"] == "device"
        self.names += ["decode", "read"] if device_decodes else ["collate", "decode", "read"]
        # The user's loader may not have begun yet.
        transfer = self._keeper.report().transfer
        assert transfer is not None
        self._transfer = transfer
        self.subject = (
            f"{loader.dataset.path}: batches of {self.batch_size} on "
            f"{transfer.device}, {report.threads} decoding threads"
        )
        self.notes = [
            "reading from the disk was not measured, since this process holds the files open; "
            "see hsipack diagnose --cold"
        ]
        if device_decodes:
            self.notes.append(
                "the device decodes, so nothing is collated on the host; samples that stay in its "
                "memory (device_cache) are not part of the diagnosis"
            )
        threads = report.threads
        self.more_threads = ("decode", cores()) if threads < cores() else None
        made = json.loads(self._pipeline or "{}")
        self.augmentations = [op["op"] for op in made.get("ops", [])]

    def _subset(self, counts: list[int]) -> list[int]:
        """The samples of some batches, spread over the samples that the loader reads."""
        _, decoded = self._sizes(self._read)
        each = sum(counts) // max(len(counts), 1)
        return _hsipack.diagnosis_samples(self._read, decoded, self._settings["batch_size"], each)

    def _sizes(self, samples: list[int]) -> tuple[int, int]:
        """The bytes of samples, stored and decoded."""
        share = len(samples) / max(len(self._loader.dataset), 1)
        stored, decoded = self._loader.dataset._native.sizes()
        return round(stored * share), round(decoded * share)

    def _like(self, **changes: Any) -> Loader:
        """A loader like the user's, of the samples of all levels, with some settings changed."""
        loader = Loader.__new__(Loader)
        full = self._items >= self._settings["batch_size"]
        if "cache" in changes:
            changes["shuffle_window"] = "all"
            if changes["cache"] == "decoded":
                changes["decode"] = "host"
        own = {
            "_settings": {
                **self._settings,
                "samples": np.array(self._samples, dtype="<i8").tobytes(),
                "crop": _of_samples(self._settings["crop"], self._samples),
                "shuffle_window": self._shuffle_window(),
                "epoch_length": None,
                "last": "drop" if full else "short",
                "trace": False,
                # Few samples would stay there, and nothing else would be measured.
                "device_cache": "none",
                "device_cache_size": 0,
                **changes,
            },
            "_members": [dataclasses.replace(self._loader._members[0], settings={}, labels=None)],
            "_output": self._loader._output,
            "_extras": self._loader._extras,
            "_augmentations": None if "pipeline" in changes else self._loader._augmentations,
            "_given_place": self._place,
            "_device_wanted": self._loader._device_wanted,
            "_seed_is_drawn": False,
            "_seed_is_agreed": True,
            # Levels are read by this rank alone.
            "_is_alone": True,
        }
        loader.__dict__.update(own)
        loader._start(None)
        return loader

    def _shuffle_window(self) -> str:
        """A shuffle window that is in proportion to these samples, as the loader's to all of its
        samples."""
        window = self._report.cache.shuffle_window
        if window is None:
            shuffled: str = self._settings["shuffle_window"]
            return shuffled
        blocks = round(window.blocks * len(self._samples) / len(self._read))
        # At least one block at a time.
        return str(window.bytes // window.blocks * max(blocks, 1))

    def _stream(self, **changes: Any) -> _Own:
        loader = self._like(**changes)
        slots: int = loader._settings["slots"] + 1
        cached = loader.report().cache.kind != "none"
        skip = max(len(loader), slots) if cached else slots
        return _Own(loader, skip, slots + FULL)

    def source(self, name: str) -> Source:
        """Batches at a level."""
        if name == "step":
            return Kept(self._augmenting(self._pipeline).next())
        if name == "augment":
            return self._augmenting(self._pipeline)
        changes: dict[str, dict[str, Any]] = {
            "prepare": {"repeat": True},
            "copy": {"repeat": True},
            "collate": {"cache": "decoded", "cache_size": ALL},
            "decode": {"cache": "compressed", "cache_size": ALL},
            "read": {},
        }
        return self._stream(**changes[name])

    def _augmenting(self, pipeline: str | None) -> Kept:
        if pipeline is None:
            return Kept(self._raw)
        # One pipeline for all batches, as in a loader, because it has its own thread.
        made = _hsipack.Pipeline(pipeline)
        return Kept(self._raw, lambda batch: self._augmented(batch, made))

    def _augmented(self, batch: Batch, pipeline: _hsipack.Pipeline) -> Batch:
        """The kept batch, augmented as the loader would augment it."""
        settings = self._keeper._settings
        images = settings["images"]
        names = [*settings["masks"], *settings["targets"], *images]
        masks = [(name, native(batch[mask_key(name)]), name in images) for name in names]
        keys = [(int(one), int(two)) for one, two in zip(batch["id"], batch["repeat"], strict=True)]
        image = batch["image"]
        are_spectra = len(image.shape) == 2
        image = image[:, :, None, None] if are_spectra else image
        made, _ = pipeline.augment(native(image), masks, batch["epoch"], keys, _torch.threads())
        output = self._loader._output
        augmented = dict(batch)
        new = given(made[0], output)
        augmented["image"] = new.reshape(new.shape[:2]) if are_spectra else new
        for name, mask in zip(names, made[1], strict=True):
            augmented[mask_key(name)] = given(mask, output)
        return augmented

    def facts(self) -> dict[str, Any]:
        """What is known besides the times."""
        stored, decoded = self._sizes(self._read)
        stack = next(iter(self._loader.dataset.stacks.values()))
        return self._known | {
            "cores": cores(),
            "stored_bytes": stored,
            "decoded_bytes": decoded,
            "copies": self._transfer.copies,
            "pixels": list(stack.shape[:2]) if crops.kind(self._settings) == "whole" else None,
            "gpu": self._settings["device"] is not None,
        }

    def without(self, place: int) -> Source:
        """Batches at the level ``augment`` without one of the augmentations."""
        return self._augmenting(_without(self._pipeline, place))

    def with_more_threads(self) -> Source:
        """Batches at the level ``decode`` with threads for all cores."""
        return self._stream(cache="compressed", cache_size=ALL, threads=cores())

    def remedied(self, remedy: dict[str, Any]) -> Source:
        """Everything real, with a remedy."""
        changes: dict[str, Any]
        match remedy["action"]:
            case "cache":
                changes = {"cache": remedy["cache"], "cache_size": ALL}
            case "threads":
                changes = {"threads": remedy["threads"]}
            case "without":
                changes = {"pipeline": _without(self._pipeline, remedy["index"])}
            case _:
                changes = crops.random(*remedy["pixels"])
        return self._stream(**changes)

    def close(self) -> None:
        """Frees everything that it holds."""
        self._keeper.close()


class _Own(Stream):
    """Batches of a loader that was made for a level."""

    def __init__(self, loader: Loader, skip: int, full: int) -> None:
        super().__init__(loader, skip)
        self._loader = loader
        self._full = full

    def warm_up(self) -> None:
        """Takes the batches of an epoch, or fewer if they fill the cache: many windows may lie in
        few chunks."""
        kept, since = 0, 0
        for _ in range(self._skip):
            self.next()
            now = self._loader._native.cached_bytes()
            since = 0 if now > kept else since + 1
            kept = now
            if since >= self._full:
                break

    def statistics(self) -> str:
        return json.dumps(self._loader.stats().to_dict())

    def close(self) -> None:
        super().close()
        self._loader.close()


def _of_samples(crop: dict[str, Any] | None, samples: list[int]) -> dict[str, Any] | None:
    """A crop without the listed windows of other samples."""
    if crop is None or crop["kind"] != "windows":
        return crop
    windows = np.frombuffer(crop["windows"], dtype="<i8").reshape(-1, 3)
    return crop | {"windows": windows[np.isin(windows[:, 0], samples)].tobytes()}


def _without(pipeline: str | None, place: int) -> str | None:
    """A pipeline without one of its augmentations."""
    made = json.loads(pipeline or "{}")
    del made["ops"][place]
    return json.dumps(made) if made["ops"] else None
