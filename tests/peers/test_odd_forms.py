"""Rows written by other programs equal plain JSON, token by token and pixel by pixel:
pandas, json.dumps with an indent, datasets, polars, Spark, macOS' archives, Anthropic's parts.
Files without rows are refused with a remedy, and images of every name are read."""

import base64
import io
import json
import subprocess
import tarfile
import types

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from prepared import read_prepared
from test_data_forms import cache, recipe  # noqa: F401, a fixture
from tools import BINARY, lft

QUESTION, ANSWER = "<image>\nWhat?", "a red dog"
TALK = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]
TEXT = [{"from": "human", "value": "What?"}, {"from": "gpt", "value": ANSWER}]
ASKED = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": ANSWER}]
TURNS = pyarrow.list_(pyarrow.struct([("from", pyarrow.string()), ("value", pyarrow.string())]))
IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def picture(kind):
    made = io.BytesIO()
    Image.linear_gradient("L").resize((31, 23)).convert("RGB").save(made, kind)
    return made.getvalue()


PNG, JPEG = picture("png"), picture("jpeg")
BASE64 = base64.b64encode(PNG).decode()


def row(**more):
    return {"id": "r", "image": "a.png", "conversations": TALK, **more}


def part_row(part):
    content = [part, {"type": "text", "text": "What?"}]
    return {"messages": [{"role": "user", "content": content}, ASKED[1]]}


def text_row(**more):
    return {"id": "r", "conversations": TEXT, **more}


def lines(size):
    return "\n".join(BASE64[at : at + size] for at in range(0, len(BASE64), size))


# name -> the file's content, all of one row like row(); as JSON text unless bytes.
WITH_IMAGE = {
    "NaN in metadata": json.dumps([row(meta={"score": float("nan"), "most": float("inf")})]),
    "a float as id": json.dumps([row(id=1.0)]),
    "indented": json.dumps(row(), indent=2),
    "indented, in a list": json.dumps([row()], indent=2),
    "a list in an object": json.dumps({"version": "1", "data": [row()]}, indent=1),
    "images next to an image": json.dumps([row(images=[])]),
    "with a byte order mark": "\ufeff" + json.dumps(row()),
    "file URI": json.dumps([row(image="file://{folder}/a.png")]),
    "file URI, escaped": json.dumps([row(image="file://localhost{folder}/%61.png")]),
    "base64": json.dumps([row(image=BASE64)]),
    "base64 in lines": json.dumps([row(image="data:image/png;base64," + lines(76))]),
    "base64 without padding": json.dumps(
        [row(image="data:image/png;base64," + BASE64.rstrip("="))]
    ),
    "base64 for URLs": json.dumps(
        [row(image="data:;base64," + base64.urlsafe_b64encode(PNG).decode())]
    ),
    "a part without a type": json.dumps([part_row({"image": "a.png"})]),
    "Anthropic's part": json.dumps(
        [
            part_row(
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": BASE64},
                }
            )
        ]
    ),
}
WITHOUT_IMAGE = {
    "an empty image": json.dumps([text_row(image="")]),
    "NaN as image": json.dumps([text_row(image=float("nan"))]),
    "null in images": json.dumps([text_row(images=[None])]),
    "an empty text in images": json.dumps([text_row(images=[""])]),
}


def tar(path, members):
    with tarfile.open(path, "w") as file:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


def table(images, talks, kind=IMAGE, talk=TURNS, key="image"):
    columns = {key: pyarrow.array(images, kind), "conversations": pyarrow.array(talks, talk)}
    return pyarrow.table(columns)


def write_arrow(path, made):
    with pyarrow.ipc.new_file(str(path), made.schema) as file:
        file.write_table(made)


@pytest.fixture(scope="module")
def made(model_dir, tmp_path_factory, cache):  # noqa: F811
    """Prepares a file of rows; returns its samples' ids, labels and pixels."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "a.png").write_bytes(PNG)
    runs = iter(range(999))

    def prepare(data):
        work = folder / f"work-{next(runs)}"
        lft("prepare", recipe(work, model_dir("plain"), str(data), folder), "--out", work / "out")
        samples = read_prepared(work / "out")
        return [
            (sample.ids, sample.labels, [image.pixels.tolist() for image in sample.images])
            for sample in samples
        ]

    def of_text(text):
        path = folder / f"rows-{next(runs)}.json"
        path.write_text(text.replace("{folder}", str(folder)))
        return prepare(path)

    return types.SimpleNamespace(
        folder=folder,
        prepare=prepare,
        of_text=of_text,
        image=of_text(json.dumps([row()])),
        text=of_text(json.dumps([text_row()])),
    )


def test_json_of_other_programs(made):
    assert made.image != made.text
    for name, text in WITH_IMAGE.items():
        assert made.of_text(text) == made.image, name
    for name, text in WITHOUT_IMAGE.items():
        assert made.of_text(text) == made.text, name
    indented = json.dumps(row(), indent=2) + "\n" + json.dumps(text_row(), indent=2)
    assert made.of_text(indented) == made.image + made.text


TALK_JSON = json.dumps({"conversations": TALK}).encode()
TARS = {
    "macOS": [
        ("._1.json", b"\0\5"),
        ("1.json", TALK_JSON),
        ("1.png", PNG),
        ("._1.png", b"\0\5"),
        (".DS_Store", b"x"),
        ("__MACOSX/._1.png", b"x"),
    ],
    "with documents": [
        ("LICENSE", b"x"),
        ("README.md", b"x"),
        ("a/1.json", TALK_JSON),
        ("a/1.png", PNG),
    ],
}


@pytest.mark.parametrize("name", TARS)
def test_tar_files_of_other_programs(name, made):
    tar(made.folder / "rows.tar", TARS[name])
    assert made.prepare(made.folder / "rows.tar") == made.image


def test_every_ending_of_an_image_counts_in_a_tar_file(made):
    (made.folder / "a.jpg").write_bytes(JPEG)
    jpeg = made.of_text(json.dumps([row(image="a.jpg")]))
    for ending in ("jpg", "jpeg", "jpe", "jfif", "JPG"):
        tar(made.folder / "rows.tar", [("1.json", TALK_JSON), (f"1.{ending}", JPEG)])
        assert made.prepare(made.folder / "rows.tar") == jpeg, ending


def test_arrow_of_other_programs(made):
    image, none = {"bytes": PNG, "path": None}, {"bytes": None, "path": None}
    views = pyarrow.struct([("bytes", pyarrow.binary_view()), ("path", pyarrow.string_view())])
    view = pyarrow.struct([("from", pyarrow.string_view()), ("value", pyarrow.string_view())])
    unmarked = pyarrow.struct([("from", pyarrow.binary()), ("value", pyarrow.binary())])
    texts = [{key: value.encode() for key, value in turn.items()} for turn in TALK]
    sequence = pyarrow.struct(
        [("from", pyarrow.list_(pyarrow.string())), ("value", pyarrow.list_(pyarrow.string()))]
    )
    columns = {key: [turn[key] for turn in TALK] for key in ("from", "value")}
    path = made.folder / "rows.arrow"
    for one in (
        table([image], [TALK], views),
        table([image], [TALK], talk=pyarrow.list_view(view)),
        table([image], [TALK], talk=pyarrow.large_list_view(view)),
        table([PNG], [TALK], pyarrow.binary(len(PNG))),
        table([{"bytes": None, "path": "a.png"}], [TALK]),
        table([[image]], [TALK], pyarrow.list_(IMAGE), key="images"),
        table([image], [columns], talk=sequence),
        table([image], [texts], talk=pyarrow.list_(unmarked)),
    ):
        write_arrow(path, one)
        assert made.prepare(path) == made.image, one.schema
    write_arrow(path, table([none], [TEXT]))
    assert made.prepare(path) == made.text


def test_bytes_and_a_path_in_one_row(made):
    two = [{"from": "human", "value": "<image>" + QUESTION}, TALK[1]]
    images = [{"bytes": PNG, "path": None}, {"bytes": None, "path": "a.png"}]
    path = made.folder / "mixed.parquet"
    pyarrow.parquet.write_table(table([images], [two], pyarrow.list_(IMAGE), key="images"), path)
    plain = {"images": ["a.png", "a.png"], "conversations": two}
    assert made.prepare(path) == made.of_text(json.dumps([plain]))


def test_empty_shards_and_what_lies_next_to_shards(made):
    folder = made.folder / "shards"
    folder.mkdir()
    full = table([{"bytes": PNG, "path": None}], [TALK])
    pyarrow.parquet.write_table(full.slice(0, 0), folder / "train-00000-of-00002.parquet")
    pyarrow.parquet.write_table(full, folder / "train-00001-of-00002.parquet")
    for name in ("._train-00001-of-00002.parquet", ".DS_Store", "README.md", "_SUCCESS"):
        (folder / name).write_bytes(b"\0\5\26\7")
    tar(folder / "empty.tar", [])
    assert made.prepare(folder) == made.image


FILES = {
    "rows.json": (json.dumps([row()]).encode("utf-16"), "text in UTF-16", "iconv -f UTF-16"),
    "rows.jsonl": (json.dumps(row()).encode("utf-16-be"), "text in UTF-16", "iconv -f UTF-16"),
    "rows.txt": (b"image,question\na.png,What?\n", "a table of text", "name it .csv"),
    "rows.csv": (b"image,frage\na.png,Was?\n", "without a dialogue", "data.columns"),
    "rows.xlsx": (b"PK\3\4" + bytes(40), "a zip archive", "JSON lines"),
    "rows.pkl": (b"\x80\4\x95" + bytes(40), "a pickle of Python", "JSON lines"),
    "rows.html": (b"<!DOCTYPE html>", "a web page", "download the file again"),
    "rows.yaml": (b"- image: a.png\n", "a YAML file", "JSON lines"),
    "lfs.json": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"),
    "a.jsonl": (PNG, "an image", "name the file of the rows"),
    "key.json": (json.dumps([row(system_prompt="x")]).encode(), "system_prompt", '"system"'),
    "big.json": (
        json.dumps([row(id=1e30)]).encode(),
        "a number too large to be read exactly",
        "in quotes",
    ),
    "url.json": (json.dumps([row(image="s3://b/a.png")]).encode(), "is a URL", "download"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_read_is_named_with_its_remedy(name, made, model_dir, tmp_path):
    content, found, remedy = FILES[name]
    (tmp_path / name).write_bytes(content)
    made_recipe = recipe(tmp_path / "work", model_dir("plain"), str(tmp_path / name), made.folder)
    for command in ("train", "validate"):
        done = subprocess.run([BINARY, command, made_recipe], capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
        assert found in done.stderr and remedy in done.stderr.split("next:")[1], done.stderr


def test_a_point_in_the_name_of_a_sample_is_named(made, model_dir, tmp_path):
    tar(tmp_path / "rows.tar", [("track 2.0.json", TALK_JSON), ("track 2.0.png", PNG)])
    made_recipe = recipe(tmp_path / "work", model_dir("plain"), str(tmp_path / "rows.tar"))
    done = lft("train", made_recipe, code=3)
    assert "track 2.0.json" in done.stderr and "ends at its first point" in done.stderr
