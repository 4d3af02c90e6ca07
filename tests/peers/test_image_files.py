"""Image files of cameras, editors and old programs are read like in PIL: rotated as by
exif_transpose, in planned positions as in the pixels, with PIL's colours, and with
data.alpha: white as composited by PIL's paste()."""

import io
import json
import warnings

import numpy
import pytest
from PIL import Image, ImageOps

import image_files
from cases import row
from prepared import read_prepared, records
from test_families import family_dir, make_recipe  # noqa: F401, a fixture
from tools import lft, score, write_rows

# PIL drops the palette of these and reads their pixels with another bit depth: noise.
MISREAD = {"grey-4.bmp", "grey-two-8.bmp"}
MODEL = "next_mistral"  # its positions depend on an image's shape


def as_pil(path, alpha="drop"):
    image = ImageOps.exif_transpose(Image.open(path))
    transparent = image.mode in ("RGBA", "LA") or "transparency" in image.info
    if alpha == "drop" or not transparent:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    ground = Image.new("RGB", rgba.size, "white")
    ground.paste(rgba, mask=rgba.getchannel("A"))
    return ground


def write_files(folder, files, alpha="drop"):
    """The files, and PIL's result for each as NAME.png; returns those that PIL reads."""
    twins = folder / alpha
    twins.mkdir(parents=True)
    read = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image = as_pil(folder / name, alpha)
        except (OSError, SyntaxError, ValueError):
            continue
        pixels = numpy.asarray(image)  # without metadata
        Image.fromarray(pixels).save(twins / f"{name}.png")
        read.append(name)
    return read


def rows_of(names, ending=""):
    return [row(name, [("<image>\nWhat?", "Noise.")], name + ending) for name in names]


def prepared(folder, model, rows, images, **data):
    """The samples' ids, and their packed pixels."""
    path = write_rows(folder.with_suffix(".jsonl"), rows)
    lft("prepare", make_recipe(MODEL, folder, model, path, images, data=data), "--out", folder)
    count = len(json.loads((folder / "index.json").read_text())["image_shards"])
    ids = {sample.id: sample.ids for sample in read_prepared(folder, pixels=False)}
    shown = [sample.images for sample in read_prepared(folder, pixels=False)]
    assert all(len(images) == 1 for images in shown)
    return ids, {packed for _, packed in records(folder, "images", count)}


def problems(recipe, code=0):
    """Findings of lft validate, by kind."""
    report = json.loads(lft("validate", recipe, "--json", code=code).stdout)
    return {problem["kind"]: problem for problem in report["problems"]}


@pytest.mark.parametrize("kind", ["turned_pngs", "turned_jpegs", "turned_others", "bitmaps"])
def test_a_file_is_read_as_pil_reads_it(kind, family_dir, tmp_path):  # noqa: F811
    files = getattr(image_files, kind)()
    names = [name for name in write_files(tmp_path, files) if name not in MISREAD]
    assert len(names) > 10
    model = family_dir(MODEL)
    ours = prepared(tmp_path / "ours", model, rows_of(names), tmp_path)
    twins = prepared(tmp_path / "twins", model, rows_of(names, ".png"), tmp_path / "drop")
    wrong = [name for name in names if ours[0][name] != twins[0][name]]
    assert not wrong  # positions
    assert ours[1] == twins[1]
    refused = sorted(set(files) - set(names))
    if not refused:
        return
    data = write_rows(tmp_path / "refused.jsonl", rows_of(refused))
    recipe = make_recipe(MODEL, tmp_path / "refused", model, data, tmp_path)
    assert problems(recipe, code=3)["broken_image"]["count"] == len(refused)


def damaged_jpegs():
    """A scan with some bytes removed: with restart markers, without, and with a marker missing."""
    picture = Image.fromarray(
        numpy.random.default_rng(3).integers(0, 256, (96, 128, 3), dtype=numpy.uint8)
    )
    files = {}
    for name, markers in [("markers", dict(restart_marker_blocks=4)), ("plain", {})]:
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=90, **markers)
        content = files[f"{name}-whole.jpg"] = out.getvalue()
        cut = content.index(b"\xff\xda") + 1000
        end = cut + 1000
        if markers:  # all of an interval
            cut, end = content.index(b"\xff\xd1") + 2, content.index(b"\xff\xd2")
        files[f"{name}.jpg"] = content[:cut] + content[end:]
    whole = files["markers-whole.jpg"]
    second = whole.index(b"\xff\xd1")
    files["marker-missing.jpg"] = whole[:second] + whole[second + 2 :]
    return files


def test_damage_that_a_restart_marker_ends_is_read_and_named(family_dir, tmp_path):  # noqa: F811
    files = damaged_jpegs()
    assert write_files(tmp_path, files) == list(files)  # PIL reads them all
    model, read = family_dir(MODEL), ["markers-whole.jpg", "markers.jpg", "plain-whole.jpg"]
    ours = prepared(tmp_path / "ours", model, rows_of(read), tmp_path)
    twins = prepared(tmp_path / "twins", model, rows_of(read, ".png"), tmp_path / "drop")
    assert ours == twins
    data = write_rows(tmp_path / "all.jsonl", rows_of(files))
    found = problems(make_recipe(MODEL, tmp_path / "all", model, data, tmp_path), code=3)
    named = {kind: [each["id"] for each in found[kind]["first"]] for kind in found}
    assert named == {
        "broken_image": ["plain.jpg", "marker-missing.jpg"],
        "damaged_scan": ["markers.jpg"],
    }
    assert "is read as PIL reads it" in found["damaged_scan"]["first"][0]["reason"]


def test_what_is_transparent_is_dropped_or_composited_on_white(family_dir, tmp_path):  # noqa: F811
    files = image_files.transparent_images()
    model = family_dir(MODEL)
    for alpha in ["drop", "white"]:
        names = write_files(tmp_path / alpha, files, alpha)
        assert names == list(files)
        folder = tmp_path / alpha
        ours = prepared(folder / "ours", model, rows_of(names), folder, alpha=alpha)
        twins = prepared(folder / "twins", model, rows_of(names, ".png"), folder / alpha)
        assert ours == twins

    # Data prepared with one setting is refused with another.
    for alpha, other in [("drop", "white"), ("white", "drop")]:
        recipe = make_recipe(
            *[MODEL, tmp_path / f"{alpha}-run", model, tmp_path / alpha / "ours", tmp_path],
            data=dict(alpha=other),
        )
        assert f'alpha "{other}"' in lft("train", recipe, code=3).stderr

    # An image that is blank without its transparency is reported if that is dropped.
    for alpha in ["drop", "white"]:
        folder = tmp_path / alpha
        data = folder / "ours.jsonl"
        recipe = make_recipe(MODEL, tmp_path / "seen", model, data, folder, data=dict(alpha=alpha))
        blank = problems(recipe).get("blank_image", {"count": 0, "first": []})
        named = sorted(problem["id"] for problem in blank["first"])
        want = ["blank-la.png", "blank.png", "blank.webp"] if alpha == "drop" else []
        assert (named, blank["count"]) == (want, len(want))


def test_the_adapter_records_how_transparency_is_read(family_dir, tmp_path):  # noqa: F811
    files = image_files.transparent_images()
    names = write_files(tmp_path, files, "white")
    model, data = family_dir(MODEL), write_rows(tmp_path / "rows.jsonl", rows_of(names))
    recipe = make_recipe(
        *[MODEL, tmp_path / "run", model, data, tmp_path],
        data=dict(alpha="white", eval=str(data)),
        train=dict(max_steps=2),
    )
    lft("train", recipe)
    adapter = tmp_path / "run" / "adapter"
    assert json.loads((adapter / "lft_adapter.json").read_text())["alpha"] == "white"
    twins = write_rows(tmp_path / "twins.jsonl", rows_of(names, ".png"))
    asked = ["--adapter", adapter]
    shown = score(tmp_path / "a.jsonl", model, data, tmp_path, *asked)
    want = score(tmp_path / "b.jsonl", model, twins, tmp_path / "white", *asked)
    assert [line["logprobs"] for line in shown] == [line["logprobs"] for line in want]
    dropped = score(tmp_path / "c.jsonl", model, data, tmp_path, *asked, "--alpha", "drop")
    assert [line["logprobs"] for line in shown] != [line["logprobs"] for line in dropped]
    mean = -sum(sum(line["logprobs"]) for line in want) / sum(
        len(line["logprobs"]) for line in want
    )
    last = json.loads(lft("eval", recipe, "--max-new-tokens", 1).stdout.splitlines()[-1])
    assert last["loss"] == pytest.approx(mean, abs=1e-4)
    merged = tmp_path / "merged"
    lft("merge", "--adapter", adapter, "--out", merged)
    asked_of = ["--image", tmp_path / "rgba.png", "--prompt", "What?", "--max-new-tokens", 8]
    one = lft("generate", "--model", model, *asked, *asked_of)
    two = lft("generate", "--model", merged, *asked_of)
    assert one.stdout == two.stdout
    assert "alpha: white (from the adapter)" in one.stderr
    assert "alpha: white (from the model)" in two.stderr
    assert 'ground.paste(image, mask=image.getchannel("A"))' in (adapter / "README.md").read_text()
