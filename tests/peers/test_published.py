"""A LLaVA and a SmolVLM of published weights (scripts/published), realistic unlike tiny random
models: scores against transformers, no false alarm, and photographs are learned."""

import functools
import pathlib
import sys

import pytest
import yaml

import families
from photographs import HELD_OUT, TRAINED, write_photographs
from cases import row
from test_families import FamilyPeer
from tools import ROOT, lft, score, write_rows

sys.path.append(str(ROOT / "scripts/published"))
import assemble  # noqa: E402, from the folder of the line before

TOLERANCE = 2e-4  # nats per token; float32 through 30 layers differs by up to 5e-5
SIZES = dict(image_size=assemble.SIDE, patch_size=assemble.PATCH)
families.SPECS["published_llava"] = dict(
    family="llava", decoder="qwen2", tower="siglip", vision=SIZES
)
families.SPECS["published_smolvlm"] = dict(family="smolvlm", vision=SIZES)
TEMPLATES = dict(llava="qwen3-vl", smolvlm="smolvlm")
FITS = dict(llava="crop", smolvlm="auto")  # as the processors do
PROJECTORS = dict(llava=["linear_1", "linear_2"], smolvlm=["modality_projection.proj"])
TEXTS = [("licence", "LICENSE", 900), ("code", "scripts/published/onnx_file.py", 600)]
STEPS, FALL = 3, 0.3  # nats


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """ "llava" or "smolvlm" -> the checkpoint's folder."""
    root = tmp_path_factory.mktemp("published")
    return functools.cache(lambda kind: assemble.assemble(kind, root / kind))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """The folder of the images, and the files of the rows."""
    root = tmp_path_factory.mktemp("photographs")
    for name, some in dict(trained=TRAINED, held_out=HELD_OUT).items():
        write_rows(root / f"{name}.jsonl", write_photographs(some, root))
    return root


@pytest.fixture(scope="module")
def scored(published, photographs, tmp_path_factory):
    """kind -> rows of photographs, text and code, and the output of lft score for them."""
    texts = [
        row(name, [("Go on.", (ROOT / path).read_text()[:length])]) for name, path, length in TEXTS
    ]

    def get(kind):
        folder = tmp_path_factory.mktemp(kind)
        rows = write_photographs(HELD_OUT, photographs) + texts
        data = write_rows(folder / "rows.jsonl", rows)
        more = ["--template", TEMPLATES[kind]]
        more += [] if FITS[kind] == "auto" else ["--image-fit", FITS[kind]]
        return rows, score(folder / "out.jsonl", published(kind), data, photographs, *more)

    return functools.cache(get)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_scores_of_published_weights(kind, published, photographs, scored):
    peer = FamilyPeer(f"published_{kind}", published(kind))
    rows, lines = scored(kind)
    for item, line in zip(rows, lines, strict=True):
        ids, labels, extra = peer.encode(item, photographs)
        assert (line["input_ids"], line["labels"]) == (ids, labels), item["id"]
        want = peer.logprobs(ids, labels, extra)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_of_a_sound_base_only_the_random_projector_is_named(kind, published):
    said = lft("debug", "base", published(kind)).stdout.splitlines()
    suspicions = [line for line in said[:-1] if not line.startswith("not judged: ")]
    assert len(suspicions) == len(PROJECTORS[kind]), suspicions
    for part in PROJECTORS[kind]:
        found = [line for line in suspicions if line.split(":")[0].endswith(f"{part}.weight")]
        assert len(found) == 1 and "looks random" in found[0], suspicions


def recipe_of(kind, compute, base_dtype, published, photographs, out):
    return dict(
        version=1,
        output_dir=str(out),
        model=dict(path=str(published(kind)), base_dtype=base_dtype),
        lora=dict(rank=16, alpha=32, dropout=0.0, targets=["llm:all-linear"]),
        full=["projector"],
        data=dict(
            train=str(photographs / "trained.jsonl"),
            image_root=str(photographs),
            template=TEMPLATES[kind],
            image_fit=FITS[kind],
            workers=1,
        ),
        optim=dict(lr=1e-3, weight_decay=0.0, warmup_ratio=0.0),
        precision=dict(compute=compute),
        train=dict(max_steps=STEPS, batch_size=4, grad_accum=1, seed=1),
        log=dict(answers=0),
    )


@pytest.mark.parametrize(
    "kind, compute, base_dtype",
    [
        pytest.param("llava", "fp32", "fp32", id="fp32"),
        pytest.param("smolvlm", "bf16", "bf16", id="bf16"),
        pytest.param("llava", "fp32", "nf4", id="nf4"),
    ],
)
def test_photographs_are_learned(
    kind, compute, base_dtype, published, photographs, scored, tmp_path
):
    recipe = recipe_of(kind, compute, base_dtype, published, photographs, tmp_path / "run")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    said = lft("train", tmp_path / "recipe.yaml")
    assert "looks odd" not in said.stdout + said.stderr
    after = score(
        tmp_path / "after.jsonl",
        published(kind),
        photographs / "held_out.jsonl",
        photographs,
        *["--adapter", tmp_path / "run/adapter"],
    )
    assert mean_loss(after) < mean_loss(scored(kind)[1][: len(HELD_OUT)]) - FALL


def mean_loss(lines):
    logprobs = [logprob for line in lines for logprob in line["logprobs"]]
    return -sum(logprobs) / len(logprobs)
