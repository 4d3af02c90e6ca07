"""lft score against transformers, from the image file to the log-probability,
for every checkpoint, in float32."""

import pytest
import yaml

import checkpoints
from cases import CASES, ROWS, make_recipe, row
from tools import lft, score, write_rows

TOLERANCE = 1e-4  # nats


def compare(rows, scored, peer, images, template, fit):
    assert [line["id"] for line in scored] == [item["id"] for item in rows]
    for item, line in zip(rows, scored):
        ids, labels, pixels = peer.encode(item, images, template, fit)
        assert line["input_ids"] == ids, item["id"]
        assert line["labels"] == labels, item["id"]
        want = peer.logprobs(ids, labels, pixels)
        assert len(want) > 1
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]
        assert line["loss"] == pytest.approx(-sum(want) / len(want), abs=TOLERANCE)


@pytest.mark.parametrize("name", checkpoints.SPECS)
@pytest.mark.parametrize("template, fit", [("llava-v1", "pad"), ("llava-hf", "crop")])
def test_from_file_to_logprob(name, template, fit, peer, model_dir, images, rows_file, tmp_path):
    scored = score(
        tmp_path / "out.jsonl",
        model_dir(name),
        rows_file,
        images,
        "--template",
        template,
        "--image-fit",
        fit,
    )
    compare(ROWS, scored, peer(name), images, template, fit)


def test_defaults_are_llava_v1_and_pad_and_said_in_one_line(
    peer, model_dir, images, rows_file, tmp_path
):
    done = lft(
        "score",
        "--model",
        model_dir("plain"),
        "--data",
        rows_file,
        "--image-root",
        images,
        "--out",
        tmp_path / "out.jsonl",
    )
    said = [line for line in done.stderr.splitlines() if "llava-v1" in line]
    assert len(said) == 1 and "pad" in said[0]
    explicit = score(
        tmp_path / "explicit.jsonl",
        model_dir("plain"),
        rows_file,
        images,
        "--template",
        "llava-v1",
        "--image-fit",
        "pad",
    )
    assert (tmp_path / "out.jsonl").read_text() == (tmp_path / "explicit.jsonl").read_text()
    assert len(explicit) == len(ROWS)


def test_plain_template(peer, model_dir, images, tmp_path):
    rows = [
        row("a", [("<image>\n", "A cat.")], "chelsea.png"),
        row("b", [("Two and two is", " four")]),
        row("c", [("a", "b"), ("c", "d")]),
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    for name in ["plain", "gqa_tied"]:
        scored = score(tmp_path / "out.jsonl", model_dir(name), data, images, "--template", "plain")
        compare(rows, scored, peer(name), images, "plain", "pad")


def test_a_row_alone_scores_as_in_company(model_dir, images, rows_file, tmp_path):
    together = score(tmp_path / "all.jsonl", model_dir("llama3_rope"), rows_file, images)
    for index in [1, 4]:
        data = write_rows(tmp_path / "one.jsonl", [ROWS[index]])
        alone = score(tmp_path / "alone.jsonl", model_dir("llama3_rope"), data, images)
        assert alone[0]["logprobs"] == pytest.approx(together[index]["logprobs"], abs=2e-5)


def test_prepared_rows_score_as_the_files_they_came_from(model_dir, images, rows_file, tmp_path):
    recipe = make_recipe(
        CASES["cosine_clip_decay"] | dict(adapter=None),
        tmp_path / "run",
        model_dir("plain"),
        None,
        images,
        rows_file,
    )
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("prepare", tmp_path / "recipe.yaml", "--out", tmp_path / "prepared")
    score(tmp_path / "files.jsonl", model_dir("plain"), rows_file, images)
    score(tmp_path / "shards.jsonl", model_dir("plain"), tmp_path / "prepared", images)
    assert (tmp_path / "shards.jsonl").read_bytes() == (tmp_path / "files.jsonl").read_bytes()


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_low_precision_stays_near(dtype, peer, model_dir, images, rows_file, tmp_path):
    scored = score(
        tmp_path / "out.jsonl", model_dir("llama3_rope"), rows_file, images, "--dtype", dtype
    )
    exact = score(tmp_path / "exact.jsonl", model_dir("llama3_rope"), rows_file, images)
    unit = 2.0**-8 if dtype == "bf16" else 2.0**-11
    for line, want in zip(scored, exact):
        # Logits of a deviation of 2 after about a dozen roundings of relative size `unit` each.
        assert line["logprobs"] == pytest.approx(want["logprobs"], abs=40 * unit)
    assert any(line["logprobs"] != want["logprobs"] for line, want in zip(scored, exact))


def test_a_failed_run_leaves_no_output(model_dir, images, tmp_path):
    data = write_rows(
        tmp_path / "rows.jsonl", [ROWS[1], row("gone", [("<image>\nWhat?", "No.")], "missing.png")]
    )
    done = lft(
        "score",
        "--model",
        model_dir("plain"),
        "--data",
        data,
        "--image-root",
        images,
        "--out",
        tmp_path / "out.jsonl",
        code=3,
    )
    assert done.stderr.count("error:") == 1 and "missing.png" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_output_inside_an_input_is_refused(model_dir, images, rows_file):
    done = lft(
        "score",
        "--model",
        model_dir("plain"),
        "--data",
        rows_file,
        "--image-root",
        images,
        "--out",
        model_dir("plain") / "x",
        code=2,
    )
    assert done.stderr.count("error:") == 1
    assert not (model_dir("plain") / "x").exists()
