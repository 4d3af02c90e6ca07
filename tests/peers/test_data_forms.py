"""The same 200 rows as JSON, data: URIs, tar, Parquet and Arrow give one adapter, bit for bit, also
when resumed in the middle of an epoch. Tar files are Python's, Parquet and Arrow files pyarrow's,
laid out like Hugging Face data sets; truncated files and missing columns are refused."""

import base64
import io
import json
import shutil
import tarfile

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from PIL import Image

from tools import lft

COUNT, STEPS, AT = 200, 10, 5


@pytest.fixture(scope="module")
def rows():
    """(row without its image, PNG)"""
    rng, made = numpy.random.default_rng(7), []
    for i in range(COUNT):
        picture = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (16 + i % 9, 20, 3), dtype=numpy.uint8)).save(
            picture, "png"
        )
        answer = ["red", "a dog", "two", "it is late"][i % 4]
        made.append(
            (
                {
                    "id": f"r{i}",
                    "conversations": [
                        {"from": "human", "value": "<image>\nWhat?"},
                        {"from": "gpt", "value": answer},
                    ],
                },
                picture.getvalue(),
            )
        )
    return made


def recipe(folder, model, data, images=None):
    made = {
        "version": 1,
        "output_dir": str(folder / "run"),
        "model": {"path": str(model)},
        "lora": {"rank": 4, "alpha": 8, "dropout": 0.1, "targets": ["llm:all-linear"]},
        "data": {
            "train": data,
            "image_root": str(images) if images else None,
            "template": "llava-v1",
            "image_fit": "pad",
            "workers": 2,
        },
        "optim": {"lr": 0.01},
        "precision": {"compute": "fp32"},
        "train": {"batch_size": COUNT // STEPS, "epochs": 1},
        "checkpoint": {"every_steps": AT, "keep": 9, "at_step_zero": False},
        "log": {
            "tensorboard": False,
            "layer_grad_norms_every": 0,
            "layer_activation_norms_every": 0,
        },
    }
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(made))
    return folder / "recipe.yaml"


def adapters(path):
    """Adapters of a run, and of the same run killed in the middle of its epoch and resumed."""
    lft("train", path)
    run = path.parent / "run"
    adapter = run / "adapter" / "adapter_model.safetensors"
    whole = adapter.read_bytes()
    for lost in [run / "adapter", run / "checkpoints" / f"step-{STEPS}"]:
        shutil.rmtree(lost)
    lft("train", path, "--resume")
    return whole, adapter.read_bytes()


def tar_of(path, rows):
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for i, (row, picture) in enumerate(rows):
            for name, content in [
                (f"{i:06}.png", picture),
                (f"{i:06}.json", json.dumps(row).encode()),
            ]:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def table(rows, **columns):
    """Images as stored by Hugging Face's datasets: bytes and path."""
    image = pyarrow.array(
        [{"bytes": picture, "path": None} for _, picture in rows],
        pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()}),
    )
    return pyarrow.table({"id": [row["id"] for row, _ in rows], "image": image, **columns})


def saved(folder, pieces):
    """The output of save_to_disk."""
    folder.mkdir()
    names = [f"data-{i:05}-of-{len(pieces):05}.arrow" for i in range(len(pieces))]
    for name, piece in zip(names, pieces):
        with pyarrow.ipc.new_stream(str(folder / name), piece.schema) as stream:
            stream.write_table(piece, max_chunksize=37)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names], "_split": "train"})
    )


@pytest.fixture(scope="module")
def forms(rows, tmp_path_factory):
    """name -> data.train, all with the same rows."""
    root = tmp_path_factory.mktemp("forms")
    (root / "images").mkdir()
    plain, uris = [], []
    for i, (row, picture) in enumerate(rows):
        (root / "images" / f"{i}.png").write_bytes(picture)
        plain.append({**row, "image": f"{i}.png"})
        uris.append({**row, "image": "data:image/png;base64," + base64.b64encode(picture).decode()})
    (root / "rows.json").write_text(json.dumps(plain))
    (root / "uris.jsonl").write_text("".join(json.dumps(row) + "\n" for row in uris))
    tar_of(root / "rows.tar", rows)
    conversations = [row["conversations"] for row, _ in rows]
    pyarrow.parquet.write_table(
        table(rows, conversations=conversations), root / "rows.parquet", row_group_size=64
    )
    halves = [rows[:120], rows[120:]]
    messages = [
        [
            [
                {"role": "user", "content": c[0]["value"]},
                {"role": "assistant", "content": c[1]["value"]},
            ]
            for c in (row["conversations"] for row, _ in half)
        ]
        for half in halves
    ]
    saved(root / "arrow", [table(half, messages=texts) for half, texts in zip(halves, messages)])
    texts = [
        [{"user": "What?", "assistant": row["conversations"][1]["value"], "source": "made"}]
        for row, _ in rows
    ]
    listed = table(rows, texts=texts)
    one = pyarrow.array(
        [[image] for image in listed["image"].to_pylist()], pyarrow.list_(listed["image"].type)
    )
    (root / "cauldron").mkdir()
    cauldron = listed.drop_columns("image").append_column("images", one)
    for i, half in enumerate([cauldron.slice(0, 90), cauldron.slice(90)]):
        pyarrow.parquet.write_table(
            half, root / "cauldron" / f"train-{i:05}-of-00002.parquet", compression="zstd"
        )
    return root


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "lft" / "unpacked"


def test_every_form_gives_the_adapter_of_json(forms, model_dir, tmp_path, cache):
    model = model_dir("plain")
    want, again = adapters(
        recipe(tmp_path / "json", model, str(forms / "rows.json"), forms / "images")
    )
    assert again == want
    for form in ["uris.jsonl", "rows.tar", "rows.parquet", "arrow", "cauldron"]:
        whole, again = adapters(recipe(tmp_path / form.replace(".", "-"), model, str(forms / form)))
        assert whole == want, form
        assert again == want, form
    assert len(list(cache.glob("*.tar"))) == 5  # one file each, unpacked once
    done = lft("validate", tmp_path / "cauldron" / "recipe.yaml")
    assert "unpacking" not in done.stderr and "200" in done.stdout


def test_a_cache_that_was_changed_is_made_anew(forms, model_dir, tmp_path, cache):
    data = tmp_path / "own.parquet"
    shutil.copy(forms / "rows.parquet", data)
    path = recipe(tmp_path / "own", model_dir("plain"), str(data))
    before = set(cache.glob("*.tar"))
    first = lft("check", path).stderr
    (tar,) = set(cache.glob("*.tar")) - before
    assert "unpacking" in first and "unpacking" not in lft("check", path).stderr
    good = tar.read_bytes()
    tar.write_bytes(good[:4000] + b"X" + good[4001:])
    again = lft("check", path).stderr
    assert "made again" in again and tar.read_bytes() == good
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(data).slice(0, 50), data)
    assert "made again" in lft("check", path).stderr and len(tar.read_bytes()) < len(good)
    assert not list(cache.glob("*.tmp"))


def test_space_is_asked_for_before_anything_is_read(forms, model_dir, tmp_path, cache):
    huge = tmp_path / "huge.arrow"
    shutil.copy(forms / "arrow" / "data-00000-of-00002.arrow", huge)
    with open(huge, "r+b") as file:
        file.truncate(15 << 40)
    before = set(cache.iterdir())
    text = refusal(recipe(tmp_path / "huge", model_dir("plain"), str(huge)), code=6)
    assert "not enough space" in text and "XDG_CACHE_HOME" in text
    assert not [path for path in set(cache.iterdir()) - before if path.suffix != ".lock"]


def refusal(path, code=3):
    return lft("check", path, code=code).stderr


def test_what_cannot_be_read_is_refused_by_file_and_row(forms, rows, model_dir, tmp_path):
    def of(name, data):
        return refusal(recipe(tmp_path / name, model_dir("plain"), str(data)))

    whole = (forms / "rows.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-40])
    assert "cut.parquet" in of("a", tmp_path / "cut.parquet")
    (tmp_path / "middle.parquet").write_bytes(whole[:400] + bytes(600) + whole[1000:])
    assert "middle.parquet" in of("b", tmp_path / "middle.parquet")
    pyarrow.parquet.write_table(table(rows[:5], prompt=["x"] * 5), tmp_path / "columns.parquet")
    text = of("c", tmp_path / "columns.parquet")
    assert "columns.parquet[0]" in text and '"prompt"' in text and "data.columns" in text
    turns = [row["conversations"] for row, _ in rows[:5]]
    turns[3] = turns[3][:1]
    pyarrow.parquet.write_table(table(rows[:5], conversations=turns), tmp_path / "open.parquet")
    assert "open.parquet[3]" in of("d", tmp_path / "open.parquet")
    arrow = tmp_path / "cut"
    shutil.copytree(forms / "arrow", arrow)
    shard = arrow / "data-00001-of-00002.arrow"
    shard.write_bytes(shard.read_bytes()[:5000])
    assert "data-00001-of-00002.arrow" in of("e", arrow)
    (tmp_path / "splits").mkdir()
    for name in ["train-00000-of-00001.parquet", "test-00000-of-00001.parquet"]:
        shutil.copy(forms / "rows.parquet", tmp_path / "splits" / name)
    assert "several splits" in of("f", tmp_path / "splits")
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert "several splits" in of("g", tmp_path / "dict")
