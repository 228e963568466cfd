"""Levels of an hsipack.Loader."""

from __future__ import annotations

import json
from typing import Any

from hsipack import _hsipack, _torch
from hsipack._arrays import given, native
from hsipack.dataset import mask_key
from hsipack.diagnosis._levels import Kept, Source, Stream, cores
from hsipack.loader import Batch, Loader

# Bytes of a cache that is to hold all of them.
ALL = 1 << 62


class LoaderLevels:
    """Levels of an hsipack.Loader, of which loaders like it are made."""

    actions: tuple[str, ...] = ("cache", "threads", "without", "crop")

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._settings = dict(loader._settings)
        self._samples = self._subset()
        self._pipeline: str | None = self._settings["pipeline"]
        self.batch_size: int | None = self._settings["batch_size"]
        self._copies = self._settings["device"] is not None or bool(self._settings["emulated_bus"])
        self._keeper = self._like(pipeline=None, slots=2)
        self._raw = next(iter(self._keeper))
        self.names = ["step"]
        self.names += ["augment"] if self._pipeline else []
        self.names += ["copy"] if self._copies else []
        self.names += ["collate", "decode", "read"]
        report = loader.report()
        place = report["transfer"]["device"]
        self.subject = (
            f"{loader.dataset.path}: batches of {self.batch_size} on {place}, "
            f"{report['threads']} decoding threads"
        )
        self._report = report
        self.notes = [
            "reading from the disk was not measured, since this process holds the files open; "
            "see hsipack diagnose --cold"
        ]
        threads = report["threads"]
        self.more_threads = ("decode", cores()) if threads < cores() else None
        made = json.loads(self._pipeline or "{}")
        self.augmentations = [op["op"] for op in made.get("ops", [])]

    def _subset(self) -> list[int]:
        """Samples of some batches, spread over those that the loader reads."""
        chosen = self._settings["samples"] or list(range(len(self._loader.dataset)))
        crop = self._settings["crop"]
        per_cube = crop.get("per_cube", 1) if crop else 1
        _, decoded = self._sizes(chosen)
        return _hsipack.diagnosis_samples(chosen, decoded, self._settings["batch_size"], per_cube)

    def _sizes(self, samples: list[int]) -> tuple[int, int]:
        """Bytes of samples, stored and decoded."""
        share = len(samples) / max(len(self._loader.dataset), 1)
        stored, decoded = self._loader.dataset._native.sizes()
        return round(stored * share), round(decoded * share)

    def _like(self, **changes: Any) -> Loader:
        """A loader like the user's, of the samples that all levels read, but for some settings."""
        loader = Loader.__new__(Loader)
        full = len(self._samples) >= self._settings["batch_size"]
        if "cache" in changes:
            changes["shuffle_window"] = "all"
        own = {
            "_settings": {
                **self._settings,
                "samples": self._samples,
                "epoch_length": None,
                "last": "drop" if full else "short",
                "trace": False,
                **changes,
            },
            "_dataset": self._loader.dataset,
            "_output": self._loader._output,
            "_columns": self._loader._columns,
        }
        loader.__dict__.update(own)
        loader._start(None)
        return loader

    def _stream(self, **changes: Any) -> _Own:
        loader = self._like(**changes)
        slots: int = loader._settings["slots"] + 1
        cached = loader.report()["cache"]["kind"] != "none"
        skip = max(len(loader), slots) if cached else slots
        return _Own(loader, skip)

    def source(self, name: str) -> Source:
        """Batches at a level."""
        if name == "step":
            return Kept(self._augmenting(self._pipeline).next())
        if name == "augment":
            return self._augmenting(self._pipeline)
        changes: dict[str, dict[str, Any]] = {
            "copy": {"repeat": True},
            "collate": {"cache": "decoded", "cache_bytes": ALL},
            "decode": {"cache": "compressed", "cache_bytes": ALL},
            "read": {},
        }
        return self._stream(**changes[name])

    def _augmenting(self, pipeline: str | None) -> Kept:
        if pipeline is None:
            return Kept(self._raw)
        # One for all batches, as a loader has: it has a thread of its own.
        made = _hsipack.Pipeline(pipeline)
        return Kept(self._raw, lambda batch: self._augmented(batch, made))

    def _augmented(self, batch: Batch, pipeline: _hsipack.Pipeline) -> Batch:
        """The kept batch, augmented as the loader would."""
        names = self._keeper._settings["masks"]
        masks = [(name, native(batch[mask_key(name)])) for name in names]
        keys = [(int(one), int(two)) for one, two in zip(batch["id"], batch["repeat"], strict=True)]
        made, _ = pipeline.augment(
            native(batch["image"]), masks, batch["epoch"], keys, _torch.threads()
        )
        output = self._loader._output
        augmented = dict(batch)
        augmented["image"] = given(made[0], output)
        for name, mask in zip(names, made[1], strict=True):
            augmented[mask_key(name)] = given(mask, output)
        return augmented

    def facts(self) -> dict[str, Any]:
        """What is known beside the times."""
        stored, decoded = self._sizes(
            self._settings["samples"] or list(range(len(self._loader.dataset)))
        )
        stack = next(iter(self._loader.dataset.stacks.values()))
        return {
            "kind": "hsipack",
            "threads": self._report["threads"],
            "cores": cores(),
            "stored_bytes": stored,
            "decoded_bytes": decoded,
            "cache": self._report["cache"]["kind"],
            "copies": self._report["transfer"]["copies"],
            "pixels": None if self._settings["crop"] else list(stack.shape[:2]),
            "gpu": self._settings["device"] is not None,
        }

    def without(self, place: int) -> Source:
        """Batches at the level ``augment`` without one of them."""
        return self._augmenting(_without(self._pipeline, place))

    def with_more_threads(self) -> Source:
        """Batches at the level ``decode`` with threads for all cores."""
        return self._stream(cache="compressed", cache_bytes=ALL, threads=cores())

    def remedied(self, remedy: dict[str, Any]) -> Source:
        """Everything real, with a remedy."""
        changes: dict[str, Any]
        match remedy["action"]:
            case "cache":
                changes = {"cache": remedy["cache"], "cache_bytes": ALL}
            case "threads":
                changes = {"threads": remedy["threads"]}
            case "without":
                changes = {"pipeline": _without(self._pipeline, remedy["place"])}
            case _:
                rows, columns = remedy["pixels"]
                crop = {"kind": "random", "rows": rows, "columns": columns}
                more = {"per_cube": 1, "min_labelled": 0.0, "row_step": 0, "column_step": 0}
                changes = {"crop": crop | more}
        return self._stream(**changes)

    def close(self) -> None:
        """Gives back what it holds."""
        self._keeper.close()


class _Own(Stream):
    """Batches of a loader that is made for a level."""

    def __init__(self, loader: Loader, skip: int) -> None:
        super().__init__(loader, skip)
        self._loader = loader

    def statistics(self) -> str:
        return json.dumps(self._loader.stats())

    def close(self) -> None:
        super().close()
        self._loader.close()


def _without(pipeline: str | None, place: int) -> str | None:
    """A pipeline without one of its augmentations."""
    made = json.loads(pipeline or "{}")
    del made["ops"][place]
    return json.dumps(made) if made["ops"] else None
