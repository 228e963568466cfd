"""Bounding boxes in files: ``hsipack.convert(boxes=...)``."""

from __future__ import annotations

import json
from pathlib import Path

import hsipack
import numpy as np
import pytest
from hsipack import ConflictError


def test_boxes_of_files_come_with_samples_and_batches(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"c{number}.npy", np.full((6, 8, 2), number, np.float32))
    annotations = {
        "images": [{"id": n, "file_name": f"c{n}.jpg", "height": 6, "width": 8} for n in range(3)],
        "categories": [{"id": 4, "name": "leaf"}, {"id": 9, "name": "stem"}],
        "annotations": [
            {"image_id": 0, "category_id": 9, "bbox": [1, 2, 3, 4]},
            {"image_id": 2, "category_id": 4, "bbox": [0, 0, 8, 6]},
            {"image_id": 2, "category_id": 9, "bbox": [-1, 0.5, 2, 1]},
        ],
    }
    file = tmp_path / "boxes.json"
    file.write_text(json.dumps(annotations))
    out = tmp_path / "out.hsipack"
    hsipack.convert(sorted(tmp_path.glob("*.npy")), out, boxes=file)
    want = [
        ([[1, 2, 4, 6]], ["stem"]),
        (np.zeros((0, 4)), []),
        ([[0, 0, 8, 6], [-1, 0.5, 1, 1.5]], ["leaf", "stem"]),
    ]
    ds = hsipack.open(out)
    for found, (boxes, labels) in zip(ds.samples, want, strict=True):
        np.testing.assert_array_equal(np.reshape(found["boxes"], (-1, 4)), boxes)
        assert found["box_labels"] == labels
    with hsipack.Loader(ds, 3, shuffle=False) as loader:
        [batch] = loader
        for found, (boxes, _) in zip(batch["boxes"], want, strict=True):
            assert len(found) == len(boxes)
    assert hsipack.validate(out, source=True).ok
    table = tmp_path / "t.csv"
    table.write_text("name,boxes\nc0,1\n")
    with pytest.raises(ConflictError, match="given twice"):
        hsipack.convert(tmp_path / "c0.npy", tmp_path / "no", boxes=file, table=table)
