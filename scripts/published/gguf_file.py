"""A GGUF file: its metadata, and its tensors dequantised to float32."""

import pathlib
import struct

import numpy as np

SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8  # ggml's tensor types
BLOCK = 32  # values that share a scale


class GgufFile:
    def __init__(self, path):
        self.bytes, self.at = pathlib.Path(path).read_bytes(), 0
        magic, _, tensors, values = self.unpack("4sIQQ")
        assert magic == b"GGUF", path
        self.metadata = {}
        for _ in range(values):
            key = self.string()
            self.metadata[key] = self.value(*self.unpack("I"))
        self.places = {}
        for _ in range(tensors):
            name = self.string()
            shape = self.unpack(f"{self.unpack('I')[0]}Q")[::-1]  # ggml lists the innermost first
            self.places[name] = (shape, *self.unpack("IQ"))
        alignment = self.metadata.get("general.alignment", 32)
        self.start = -(-self.at // alignment) * alignment

    def unpack(self, form):
        values = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def string(self):
        return self.unpack(f"{self.unpack('Q')[0]}s")[0].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.unpack("IQ")
            if kind in SCALARS:
                return list(self.unpack(f"{count}{SCALARS[kind]}"))
            return [self.value(kind) for _ in range(count)]
        return self.unpack(SCALARS[kind])[0]

    def tensor(self, name):
        shape, kind, offset = self.places[name]
        count, begin = int(np.prod(shape)), self.start + offset
        if kind == F32:
            return np.frombuffer(self.bytes, "<f4", count, begin).reshape(shape)
        # A block is its scale (Q4_1: also its minimum), then its codes.
        codes = dict([(Q4_1, [("least", "<f2"), ("codes", "u1", BLOCK // 2)])]).get(
            kind, [("codes", "i1", BLOCK)]
        )
        assert kind in (Q4_1, Q8_0), f"{name}: type {kind}"
        blocks = np.frombuffer(
            self.bytes, np.dtype([("scale", "<f2"), *codes]), count // BLOCK, begin
        )
        scale = blocks["scale"].astype(np.float32)[:, None]
        if kind == Q8_0:
            return (scale * blocks["codes"]).reshape(shape)
        low, high = blocks["codes"] & 15, blocks["codes"] >> 4
        least = blocks["least"].astype(np.float32)[:, None]
        return (scale * np.concatenate([low, high], axis=1) + least).reshape(shape)
