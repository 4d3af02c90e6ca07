"""Columns of every Arrow type: values that pyarrow reads as text are trained on as that text;
values without a JSON form are refused by type where needed. Rows of Parquet and Arrow files and
of folders saved by datasets equal those of JSON lines, token by token."""

import decimal
import json
import uuid

import pyarrow
import pyarrow.compute
import pyarrow.parquet
import pytest
from PIL import Image

from test_data_forms import saved
from tools import lft, score, write_rows

ROLES = ["user", "assistant"] * 3
TEXTS = ["Say two.", "two", "Say two.", "two", "Say two.", "three"]


class Own(pyarrow.ExtensionType):
    def __init__(self):
        super().__init__(pyarrow.string(), "tests.own")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def extension(kind, storage):
    return pyarrow.ExtensionArray.from_storage(kind, storage)


def texts_as(kind):
    """TEXTS, as pyarrow reads them, in an array of another type."""
    plain, ones = pyarrow.array(TEXTS), pyarrow.array([1] * 6, pyarrow.int8())
    places = pyarrow.array(range(6), pyarrow.int32())
    quoted = pyarrow.array([json.dumps(text) for text in TEXTS])
    parts = pyarrow.array([json.dumps([{"type": "text", "text": text}]) for text in TEXTS])
    return {
        "string": lambda: plain,
        "large": lambda: plain.cast(pyarrow.large_string()),
        "view": lambda: plain.cast(pyarrow.string_view()),
        "dictionary": lambda: plain.dictionary_encode(),
        "runs": lambda: pyarrow.compute.run_end_encode(plain),
        "dense": lambda: pyarrow.UnionArray.from_dense(
            ones, places, [pyarrow.array([0]), plain], ["a", "b"]
        ),
        "sparse": lambda: pyarrow.UnionArray.from_sparse(
            ones, [pyarrow.array([0] * 6), plain], ["a", "b"]
        ),
        "own": lambda: extension(Own(), plain),
        "opaque": lambda: extension(pyarrow.opaque(pyarrow.string(), "text", "other"), plain),
        "json": lambda: extension(pyarrow.json_(pyarrow.string()), quoted),
        "json parts": lambda: extension(pyarrow.json_(pyarrow.string()), parts),
    }[kind]()


def messages_of(contents, form="list"):
    """One row per two of `contents`."""
    each = pyarrow.StructArray.from_arrays([pyarrow.array(ROLES), contents], ["role", "content"])
    begins, sizes = pyarrow.array([0, 2, 4, 6], pyarrow.int32()), pyarrow.array([2, 2, 2])
    if form == "list":
        return pyarrow.ListArray.from_arrays(begins, each)
    if form == "view":
        return pyarrow.ListViewArray.from_arrays(begins[:3], sizes.cast(pyarrow.int32()), each)
    return pyarrow.LargeListViewArray.from_arrays(begins[:3].cast(pyarrow.int64()), sizes, each)


def write(path, table):
    """Written as a Parquet file, an Arrow file, or a folder, depending on the name."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".arrow":
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    else:
        saved(path, [table])
    return path


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def tokens(out, model, data, images):
    return [(line["input_ids"], line["logprobs"]) for line in score(out, model, data, images)]


@pytest.fixture(scope="module")
def want(model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    talks = [
        [{"role": role, "content": text} for role, text in zip(ROLES, TEXTS)][i : i + 2]
        for i in (0, 2, 4)
    ]
    rows = write_rows(folder / "rows.jsonl", [{"messages": talk} for talk in talks])
    return tokens(folder / "out.jsonl", model_dir("plain"), rows, folder)


@pytest.mark.parametrize(
    "kind, endings",
    [
        *[(kind, ["parquet", "arrow", "folder"]) for kind in ("string", "json", "json parts")],
        *[(kind, ["parquet", "arrow"]) for kind in ("large", "dictionary", "own", "opaque")],
        *[(kind, ["arrow"]) for kind in ("view", "runs", "dense", "sparse")],
    ],
)
def test_a_text_is_read_as_pyarrow_reads_it(kind, endings, want, model_dir, tmp_path):
    table = pyarrow.table({"messages": messages_of(texts_as(kind))})
    for ending in endings:
        name = "folder" if ending == "folder" else f"rows.{ending}"
        data = write(tmp_path / name, table)
        assert tokens(tmp_path / "out.jsonl", model_dir("plain"), data, tmp_path) == want, ending


def test_view_types_of_lists_and_images_are_read(want, model_dir, tmp_path):
    model = model_dir("plain")
    for form in ["view", "large"]:
        table = pyarrow.table({"messages": messages_of(pyarrow.array(TEXTS), form)})
        data = write(tmp_path / f"{form}.arrow", table)
        assert tokens(tmp_path / "out.jsonl", model, data, tmp_path) == want
    Image.new("RGB", (20, 16), (200, 30, 7)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    talk = [
        [
            {"role": "user", "content": "<image>\nSay two."},
            {"role": "assistant", "content": "two"},
        ]
    ]
    rows = write_rows(tmp_path / "rows.jsonl", [{"image": "a.png", "messages": talk[0]}])
    seen = tokens(tmp_path / "out.jsonl", model, rows, tmp_path)
    for kind in [pyarrow.binary(), pyarrow.binary_view(), pyarrow.binary(len(content))]:
        pairs = pyarrow.StructArray.from_arrays(
            [pyarrow.array([content], kind), pyarrow.array([None], pyarrow.string_view())],
            ["bytes", "path"],
        )
        table = pyarrow.table({"image": pairs, "messages": pyarrow.array(talk)})
        data = write(tmp_path / "images.arrow", table)
        assert tokens(tmp_path / "out.jsonl", model, data, tmp_path) == seen


REFUSED = {
    "timestamp[us]": lambda: pyarrow.array([7] * 6, pyarrow.timestamp("us")),
    "date32": lambda: pyarrow.array([7] * 6, pyarrow.date32()),
    "time64[us]": lambda: pyarrow.array([7] * 6, pyarrow.time64("us")),
    "duration[s]": lambda: pyarrow.array([7] * 6, pyarrow.duration("s")),
    "decimal128(5, 2)": lambda: pyarrow.array(
        [decimal.Decimal("2.00")] * 6, pyarrow.decimal128(5, 2)
    ),
    "fixed_size_binary[3]": lambda: pyarrow.array([b"two"] * 6, pyarrow.binary(3)),
    "arrow.uuid": lambda: pyarrow.array([uuid.UUID(int=7).bytes] * 6, pyarrow.uuid()),
    "map<int8, string": lambda: pyarrow.array(
        [[(1, "two")]] * 6, pyarrow.map_(pyarrow.int8(), pyarrow.string())
    ),
    "an object": lambda: pyarrow.array(
        [[("a", "two")]] * 6, pyarrow.map_(pyarrow.string(), pyarrow.string())
    ),
    "null": lambda: pyarrow.array([float("nan")] * 6),
    "true": lambda: extension(pyarrow.bool8(), pyarrow.array([1] * 6, pyarrow.int8())),
    '"two"': lambda: pyarrow.array([["two"]] * 6, pyarrow.list_view(pyarrow.string())),
    "arrow.json": lambda: extension(
        pyarrow.json_(pyarrow.string()), pyarrow.array(["{two", "[" * 99 + "]" * 99] * 3)
    ),
    "7": lambda: extension(pyarrow.json_(pyarrow.string()), pyarrow.array(["7"] * 6)),
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_is_no_text_is_refused_by_its_type(named, model_dir, tmp_path):
    table = pyarrow.table({"messages": messages_of(REFUSED[named]())})
    data = write(tmp_path / "rows.arrow", table)
    out = ["--out", tmp_path / "out.jsonl"]
    said = lft("score", "--model", model_dir("plain"), "--data", data, *out, code=3).stderr
    assert "rows.arrow[0]: messages[0]" in said and named in said


def test_metadata_and_ids_may_be_of_any_type(want, model_dir, tmp_path):
    columns = {f"m{i}": make().slice(0, 3) for i, make in enumerate(REFUSED.values())}
    table = pyarrow.table(
        {
            "messages": messages_of(pyarrow.array(TEXTS)),
            "metadata": pyarrow.StructArray.from_arrays(list(columns.values()), list(columns)),
            "created_at": REFUSED["timestamp[us]"]().slice(0, 3),
            "id": pyarrow.array([uuid.UUID(int=i).bytes for i in range(3)], pyarrow.uuid()),
        }
    )
    data = write(tmp_path / "rows.arrow", table)
    lines = score(tmp_path / "out.jsonl", model_dir("plain"), data, tmp_path)
    assert [(line["input_ids"], line["logprobs"]) for line in lines] == want
    assert [line["id"] for line in lines] == [str(uuid.UUID(int=i)) for i in range(3)]
