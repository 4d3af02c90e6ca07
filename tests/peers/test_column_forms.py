"""Rows of columns in every kind of file, written by Python's csv and by pyarrow, are prepared to
the tokens, labels and pixels of the same rows as messages."""

import csv
import io
import json
import tarfile
import types

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from prepared import read_prepared
from test_data_forms import cache, recipe  # noqa: F401, a fixture
from tools import lft

ROWS = [
    ("a.png", 'What is "this", then?', "a dog,\nor a cat"),
    ("b.png", "Wie heißt das?", "ein Hund"),
    ("a.png", "And\r\nhere?\tSee", "nothing"),
]


def picture(path, grey):
    Image.new("RGB", (23, 31), (grey, 9, 250 - grey)).save(path)
    return path.read_bytes()


def messages(image, question, answer):
    parts = [{"type": "image", "path": image}, {"type": "text", "text": question}]
    return {
        "messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": answer},
        ]
    }


@pytest.fixture(scope="module")
def made(model_dir, tmp_path_factory, cache):  # noqa: F811
    folder = tmp_path_factory.mktemp("columns")
    bytes_of = {name: picture(folder / name, grey) for name, grey in (("a.png", 3), ("b.png", 90))}
    runs = iter(range(999))

    def prepare(data, *sets):
        work = folder / f"work-{next(runs)}"
        sets = [word for one in sets for word in ("--set", one)]
        lft(
            "prepare",
            recipe(work, model_dir("plain"), str(data), folder),
            "--out",
            work / "out",
            *sets,
        )
        return [
            (sample.ids, sample.labels, [image.pixels.tolist() for image in sample.images])
            for sample in read_prepared(work / "out")
        ]

    rows = folder / "messages.json"
    rows.write_text(json.dumps([messages(*row) for row in ROWS]))
    return types.SimpleNamespace(
        folder=folder, bytes=bytes_of, prepare=prepare, samples=prepare(rows)
    )


@pytest.mark.parametrize(
    "names",
    [
        "image question answer",
        "image query response",
        "image prompt completion",
        "images instruction output",
    ],
)
@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl"])
def test_text_files_of_columns_equal_messages(ending, names, made, tmp_path):
    path, keys = tmp_path / f"rows.{ending}", names.split()
    if ending in ("csv", "tsv"):
        with open(path, "w", newline="", encoding="utf-8-sig") as file:
            out = csv.writer(file, delimiter="\t" if ending == "tsv" else ",")
            out.writerows([keys, *ROWS])
    else:
        rows = [dict(zip(keys, row, strict=True)) for row in ROWS]
        path.write_text(
            json.dumps(rows) if ending == "json" else "\n".join(json.dumps(row) for row in rows)
        )
    assert made.prepare(path) == made.samples


@pytest.mark.parametrize("ending", ["parquet", "arrow", "tar"])
@pytest.mark.parametrize("names", ["image question answer", "bild frage antwort"])
def test_files_with_their_images_equal_messages(ending, names, made, tmp_path):
    path, keys = tmp_path / f"rows.{ending}", names.split()
    sets = []
    if keys[0] == "bild":
        sets = ["data.columns={image: bild, question: frage, answer: antwort}"]
    if ending == "tar":
        with tarfile.open(path, "w") as file:
            for at, row in enumerate(ROWS):
                texts = dict(zip(keys[1:], row[1:], strict=True))
                sets = ["data.columns={question: frage, answer: antwort}"] if sets else []
                for name, content in (
                    (f"{at}.json", json.dumps(texts).encode()),
                    (f"{at}.png", made.bytes[row[0]]),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    file.addfile(member, io.BytesIO(content))
    else:
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        images = [{"bytes": made.bytes[row[0]], "path": row[0]} for row in ROWS]
        table = pyarrow.table(
            {
                keys[0]: pyarrow.array(images, kind),
                keys[1]: [row[1] for row in ROWS],
                keys[2]: [row[2] for row in ROWS],
            }
        )
        if ending == "parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            with pyarrow.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table)
    assert made.prepare(path, *sets) == made.samples


def test_choices_of_a_parquet_file(made, tmp_path):
    table = pyarrow.table(
        {"question": ["Which?"], "choices": [["a cat", "a dog"]], "label": pyarrow.array([1])}
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(
        json.dumps(
            [
                {
                    "conversations": [
                        {"from": "human", "value": "Which?\nA. a cat\nB. a dog"},
                        {"from": "gpt", "value": "B. a dog"},
                    ]
                }
            ]
        )
    )
    assert made.prepare(tmp_path / "rows.parquet") == made.prepare(tmp_path / "rows.json")


@pytest.mark.parametrize("kind", [pyarrow.float64(), pyarrow.float32(), pyarrow.int64()])
def test_numbers_of_a_parquet_file_are_those_of_json(kind, made, tmp_path):
    """Arrow prints the floating-point number 2.0 as 2."""
    numbers = [2, 1000, -7] if kind == pyarrow.int64() else [2.0, -1000.0, 0.5]
    rows = [{"question": "How many?", "answer": number} for number in numbers]
    answers = pyarrow.array(numbers, kind)
    table = pyarrow.table({"question": [row["question"] for row in rows], "answer": answers})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert made.prepare(tmp_path / "rows.parquet") == made.prepare(tmp_path / "rows.jsonl")


IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def image(content, path=None):
    return {"bytes": content, "path": path}


def talk(question):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": "a cat"}]


def parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_only_the_images_of_their_columns_are_shown(made, tmp_path):
    """Not thumbnails, hashes or sounds in other columns, of rows with and without an image."""
    a, b = made.bytes["a.png"], made.bytes["b.png"]
    (tmp_path / "rows.json").write_text(
        json.dumps(
            [{"image": "a.png", "messages": talk("<image>\nWhat?")}, {"messages": talk("No?")}]
        )
    )
    others = {
        "preview": pyarrow.array([image(b), image(b)], IMAGE),
        "sha1": pyarrow.array([b"\1\2\3", b"BM123"]),
        "sound": pyarrow.array([image(b"RIFF\0\0\0\0WAVE")] * 2, IMAGE),
    }
    want = made.prepare(tmp_path / "rows.json")
    talks = pyarrow.array([talk("<image>\nWhat?"), talk("No?")])
    for images in ([image(a), None], [image(a), image(None)]):
        shown = pyarrow.array(images, IMAGE)
        path = parquet(tmp_path / "rows.parquet", **others, image=shown, messages=talks)
        assert made.prepare(path) == want
    lists = pyarrow.array([[image(a)], []], pyarrow.list_(IMAGE))
    path = parquet(tmp_path / "lists.parquet", **others, images=lists, messages=talks)
    assert made.prepare(path) == want
    # A file named in its column, next to bytes in another one.
    names = pyarrow.array(["a.png", None])
    path = parquet(tmp_path / "names.parquet", **others, image=names, messages=talks)
    assert made.prepare(path) == want


def test_a_question_whose_image_is_in_another_column_is_refused(made, model_dir, tmp_path):
    columns = {"question": ["Q"], "answer": ["A"]}
    pictures = pyarrow.array([image(made.bytes["a.png"])], IMAGE)
    path = parquet(tmp_path / "rows.parquet", **columns, photo=pictures)
    said = lft("train", recipe(tmp_path / "work", model_dir("plain"), str(path)), code=3).stderr
    assert "a column names an image, and the row has none" in said and 'image: "photo"' in said
    assert len(made.prepare(path, "data.columns={image: photo}")[0][2]) == 1
    hashes = pyarrow.array([b"\1\2\3"])
    path = parquet(tmp_path / "hash.parquet", **columns, sha1=hashes)
    assert made.prepare(path)[0][2] == []


def image_folder(folder, bytes_of):
    for name, content in bytes_of.items():
        (folder / name).write_bytes(content)
    with open(folder / "metadata.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file_name", "question", "answer"), *ROWS])
    return folder


def test_an_image_folder_equals_messages(made, model_dir, tmp_path):
    image_folder(tmp_path, made.bytes)
    path = recipe(tmp_path / "work", model_dir("plain"), str(tmp_path))
    lft("prepare", path, "--out", tmp_path / "out")
    for got, want in zip(read_prepared(tmp_path / "out"), made.samples, strict=True):
        assert (got.ids, got.labels) == want[:2]
        assert [image.pixels.tolist() for image in got.images] == want[2]


def test_every_command_reads_a_mixture_of_forms(made, model_dir, tmp_path):
    """A CSV file with other names, a folder of JSON files and a set of dataset_info.json."""
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8") as file:
        rows = [(*row, "someone") for row in ROWS * 4]
        csv.writer(file).writerows([("image", "q", "a", "annotator"), *rows])
    (tmp_path / "parts").mkdir()
    for part in range(2):
        rows = [dict(zip(("image", "question", "answer"), row, strict=True)) for row in ROWS]
        (tmp_path / "parts" / f"{part}.json").write_text(json.dumps(rows))
    alpaca = [{"instruction": "Say", "input": word, "output": word} for word in ("a", "b", "c")]
    (tmp_path / "alpaca.json").write_text(json.dumps(alpaca))
    info = {"own": {"file_name": "alpaca.json"}, "other": {"file_name": "gone.json"}}
    (tmp_path / "dataset_info.json").write_text(json.dumps(info))
    sources = [
        {"path": str(tmp_path / "rows.csv"), "weight": 0.5},
        {"path": str(tmp_path / "parts")},
        {"path": str(tmp_path / "dataset_info.json") + "#own"},
    ]
    path = recipe(tmp_path / "work", model_dir("plain"), sources, made.folder)
    sets = [
        "--set", "data.columns={question: q, answer: a}",
        "--set", f"data.eval={tmp_path / 'rows.csv'}",
        "--set", "train.batch_size=4",
        "--set", "data.unknown_keys=warn",
        "--set", "optim.warmup_ratio=0",
    ]  # fmt: skip
    for command in ("validate", "preview", "check", "train"):
        said = lft(command, path, *sets)
        text = said.stdout + said.stderr
        if command != "preview":
            assert "rows of question (column q), answer (column a), image (CSV)" in text, text
            assert "rows of question, answer, image (JSON array)" in text, text
            assert 'lft does not use "annotator" (12 rows)' in text, text
    lft("debug", "subset", path, "-n", "4", *sets)
    assert json.loads(lft("eval", path, *sets).stdout)["samples"] == 12


def test_validate_prints_the_advice_of_train(made, model_dir, tmp_path):
    bad = {
        "an answer": ("image,question,answer\na.png,Q,\n", "data.on_bad_sample: skip"),
        "a column": ("image,frage,antwort\na.png,Q,A\n", "data.columns"),
        "an image": ("image,question,answer\ngone.png,Q,A\n", "data.image_root"),
        "a video": ("video,question,answer\na.mp4,Q,A\n", "single frames"),
        "cells": ("image,question,answer\na.png,Q,A,B\n", "as many cells as columns"),
    }
    for name, (text, advice) in bad.items():
        (tmp_path / "rows.csv").write_text(text)
        path = recipe(
            tmp_path / "work", model_dir("plain"), str(tmp_path / "rows.csv"), made.folder
        )
        next_of = {}
        for command in ("train", "validate"):
            said = lft(command, path, "--set", "optim.warmup_ratio=0", code=3)
            next_of[command] = said.stderr.split("next: ")[1].split()
            assert advice in " ".join(next_of[command]), (name, said.stderr)
        assert next_of["train"] == next_of["validate"], name
        assert "  next: " + " ".join(next_of["train"]) in said.stdout, (name, said.stdout)
