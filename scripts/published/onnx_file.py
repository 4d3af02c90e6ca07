"""The weights of an ONNX file, as float32 arrays by name."""

import pathlib

import numpy as np

# Fields of onnx.proto: of the model, the graph, a node and a tensor.
GRAPH = 7
NODE, INITIALIZER = 1, 5
INPUT, NODE_NAME = 1, 3
DIMS, DATA_TYPE, NAME, RAW_DATA = 1, 2, 8, 9
FLOAT = 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a protobuf message: pairs of number and value."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind)
            if kind == BYTES:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def text(value):
    return bytes(value).decode()


def read_onnx(path):
    """The exporter names a linear layer's matrix by a number and transposes it; this restores
    torch's name and layout."""
    weights, nodes = {}, {}
    data = memoryview(pathlib.Path(path).read_bytes())
    graph = next(value for field, value in fields(data) if field == GRAPH)
    for field, message in fields(graph):
        if field == INITIALIZER:
            parts = list(fields(message))
            one = dict(parts)
            if one.get(DATA_TYPE) == FLOAT and RAW_DATA in one:
                shape = [value for number, value in parts if number == DIMS]
                weights[text(one[NAME])] = np.frombuffer(one[RAW_DATA], "<f4").reshape(shape)
        elif field == NODE:
            parts = list(fields(message))
            name = next((text(value) for number, value in parts if number == NODE_NAME), "")
            for number, value in parts:
                if number == INPUT and text(value).startswith("onnx::"):
                    nodes[text(value)] = name.strip("/").replace("/", ".")
    named = {nodes.get(name, name): weight for name, weight in weights.items()}
    return {
        name.replace(".MatMul", ".weight"): weight.T if name.endswith(".MatMul") else weight
        for name, weight in named.items()
    }
