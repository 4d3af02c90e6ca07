"""Prepared data of version 3, read according to src/data/prepared.h and the files it names,
without lft."""

import collections
import json
import struct
import zlib

import numpy as np
import torch
from safetensors.torch import load_file

Sample = collections.namedtuple("Sample", "id ids labels images row")
Image = collections.namedtuple(
    "Image", "shape pixels"
)  # shape: tiles, height, width, rows, columns, ...; pixels: [tiles, 3, height, width]


def records(folder, kind, count):
    for number in range(count):
        file = load_file(folder / f"{kind}-{number:05}.safetensors")
        data, table = file["data"].numpy().tobytes(), file["records"].tolist()
        for record, after in zip(table, table[1:]):
            yield record[2:], data[record[0] : after[0]]


def unpack(packed, tiles, height, width):
    """zlib, then LOCO-I's median prediction inverted for all planes at once,
    then green added back to red and blue."""
    planes = (
        np.frombuffer(zlib.decompress(packed), np.uint8)
        .reshape(3 * tiles, height, width)
        .astype(np.int64)
    )
    for y in range(height):
        for x in range(width):
            left = planes[:, y, x - 1] if x else 0
            up = planes[:, y - 1, x] if y else 0
            corner = planes[:, y - 1, x - 1] if x and y else 0
            planes[:, y, x] = (
                planes[:, y, x]
                + np.clip(left + up - corner, np.minimum(left, up), np.maximum(left, up))
            ) % 256
    planes = planes.reshape(tiles, 3, height, width)
    planes[:, 0], planes[:, 2] = (
        (planes[:, 0] + planes[:, 1]) % 256,
        (planes[:, 2] + planes[:, 1]) % 256,
    )
    return torch.from_numpy(planes.astype(np.uint8))


def read_prepared(folder, pixels=True):
    index = json.loads((folder / "index.json").read_text())
    assert index["lft_prepared"] == 3
    image_token = index["made_for"]["image_token"]
    images = [
        Image(shape, unpack(packed, *shape[:3]) if pixels else None)
        for shape, packed in records(folder, "images", len(index["image_shards"]))
    ]
    samples = []
    for _, data in records(folder, "shard", len(index["shards"])):
        counts = struct.unpack_from("<5i", data)
        numbers = list(struct.unpack_from(f"<{sum(counts[:4])}i", data, 20))
        stored, spans, runs, shown = (
            numbers[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(4)
        )
        text = data[20 + 4 * sum(counts[:4]) :]
        learnt = {
            i for begin, count in zip(spans[::2], spans[1::2]) for i in range(begin, begin + count)
        }
        ids, labels = [], []
        for i, token in enumerate(stored):
            copies = runs.pop(0) if token == image_token else 1
            ids += [token] * copies
            labels += [token if i in learnt else -100] * copies
        samples.append(
            Sample(
                text[: counts[4]].decode(),
                ids,
                labels,
                [images[i] for i in shown],
                json.loads(text[counts[4] :]),
            )
        )
    return samples
