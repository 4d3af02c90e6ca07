"""Checkpoints with alternative file layouts that transformers accepts: indexes, tied heads,
names, windows, rotary scalings, vocabularies. Each gives the same numbers as in transformers."""

import json
import shutil

import families
import pytest
import torch
import transformers
from checkpoints import CORPUS
from safetensors.torch import load_file, save_file
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    FamilyPeer,
    family_dir,
    make_recipe,
)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tools import lft, score, step_lines, write_rows

TOLERANCE = 1e-4  # nats
ITEMS = FAMILY_ROWS[:3]
INDEX = "model.safetensors.index.json"
families.SPECS |= {
    "layout_qwen3": families.SPECS["qwen3_tied"] | dict(shards=True),
    "layout_next": families.SPECS["next_qwen2_shards"] | dict(tie=True),
    "layout_qwen25": families.SPECS["qwen25_tied_bf16"] | dict(dtype=torch.float32),
    "layout_onevision": families.SPECS["onevision_tied_bf16"] | dict(dtype=torch.float32),
}
TIED = [
    "layout_qwen3",
    "layout_qwen25",
    "layout_next",
    "layout_onevision",
    "smol_tied",
    "gemma_gqa",
]


class Files:
    """A copy of a checkpoint for a test to modify."""

    def __init__(self, base, path):
        shutil.copytree(base, path)
        self.path = path

    def change(self, name, body):
        data = json.loads((self.path / name).read_text())
        body(data)
        (self.path / name).write_text(json.dumps(data))

    def shards(self):
        return sorted(self.path.glob("*.safetensors"))

    def change_tensors(self, body):
        """Calls body(tensors) on every shard."""
        for shard in self.shards():
            tensors = load_file(shard)
            body(tensors)
            save_file(tensors, shard, metadata=dict(format="pt"))

    def config(self, **fields):
        """Modifies the text part of the config."""
        self.change("config.json", lambda data: data["text_config"].update(fields))


@pytest.fixture
def files(family_dir, tmp_path):  # noqa: F811
    return lambda name: Files(family_dir(name), tmp_path / "model")


def scores(path, images, tmp_path, *more, items=ITEMS):
    rows = write_rows(tmp_path / "rows.jsonl", items)
    return score(tmp_path / "out.jsonl", path, rows, images, *more)


def compare(name, path, images, tmp_path, adapter=None, items=ITEMS):
    """With a new peer per row: its memory of longer rows then affects none."""
    more = () if adapter is None else ("--adapter", adapter)
    scored = scores(path, images, tmp_path, *more, items=items)
    for item, line in zip(items, scored, strict=True):
        peer = FamilyPeer(name, path, adapter)
        ids, labels, extra = peer.encode(item, images)
        assert line["input_ids"] == ids
        assert line["logprobs"] == pytest.approx(peer.logprobs(ids, labels, extra), abs=TOLERANCE)


def warnings_of(path, images, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS[:1])
    done = lft(
        "score", "--model", path, "--data", rows, "--image-root", images,
        "--out", tmp_path / "again.jsonl",
    )  # fmt: skip
    return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


def head_alone(tensors):
    for name in [name for name in tensors if name.endswith("embed_tokens.weight")]:
        tensors["lm_head.weight"] = tensors.pop(name)


def own_head(tensors):
    for name in [name for name in tensors if name.endswith("embed_tokens.weight")]:
        noise = torch.randn(tensors[name].shape, generator=torch.Generator().manual_seed(3))
        tensors["lm_head.weight"] = noise * 0.1


def relist(data, path):
    """The index of the stored tensors."""
    data["weight_map"] = {
        name: shard.name
        for shard in sorted(path.glob("*.safetensors"))
        for name in load_file(shard)
    }


@pytest.mark.parametrize("name", TIED)
def test_a_head_that_is_stored_alone_is_the_embedding_too(name, files, images, tmp_path):
    model = files(name)
    model.change_tensors(head_alone)
    if (model.path / INDEX).exists():
        model.change(INDEX, lambda data: relist(data, model.path))
    compare(name, model.path, images, tmp_path)
    assert warnings_of(model.path, images, tmp_path) == []


@pytest.mark.parametrize("name", TIED)
def test_a_head_that_differs_from_the_embedding_is_not_tied(name, files, images, tmp_path):
    model = files(name)
    model.change_tensors(own_head)
    if (model.path / INDEX).exists():
        model.change(INDEX, lambda data: relist(data, model.path))
    compare(name, model.path, images, tmp_path)
    (said,) = warnings_of(model.path, images, tmp_path)
    assert "ties the LM head to the embedding, but the weights differ: lm_head.weight" in said


def total_size(value):
    return lambda model: model.change(INDEX, lambda data: data["metadata"].update(total_size=value))


def unlisted(model):
    def take_out(data):
        shards = list(data["weight_map"].values())
        most = max(shards, key=shards.count)  # still listed under other names
        data["weight_map"].pop(next(key for key, at in data["weight_map"].items() if at == most))

    model.change(INDEX, take_out)


def listed_elsewhere(model):
    def swap(data):
        shards = list(data["weight_map"].values())
        most = max(shards, key=shards.count)  # still listed under other names
        name = next(key for key, shard in data["weight_map"].items() if shard == most)
        data["weight_map"][name] = next(shard for shard in shards if shard != most)

    model.change(INDEX, swap)


def listed_and_absent(model):
    name = "model.language_model.layers.0.self_attn.rotary_emb.inv_freq"
    model.change(
        INDEX,
        lambda data: data["weight_map"].update({name: sorted(data["weight_map"].values())[0]}),
    )


def in_a_folder_below(model):
    (model.path / "weights").mkdir()
    for shard in model.shards():
        shard.rename(model.path / "weights" / shard.name)
    model.change(
        INDEX,
        lambda data: data.update(
            weight_map={key: f"weights/{shard}" for key, shard in data["weight_map"].items()}
        ),
    )


def twice(model):
    """The last shard's tensor is used."""
    first, last = model.shards()[0], model.shards()[-1]
    name, tensor = next(iter(load_file(last).items()))
    tensors = load_file(first) | {name: torch.zeros_like(tensor)}
    save_file(tensors, first, metadata=dict(format="pt"))


LAYOUTS = dict(
    another_size=total_size(12),
    a_size_in_words=total_size("3 GB"),
    no_size=total_size(None),
    unlisted=unlisted,
    listed_elsewhere=listed_elsewhere,
    listed_and_absent=listed_and_absent,
    in_a_folder_below=in_a_folder_below,
    twice=twice,
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_is_read_for_its_shards_alone(layout, files, images, tmp_path):
    model = files("layout_qwen3")
    LAYOUTS[layout](model)
    compare("layout_qwen3", model.path, images, tmp_path)
    assert warnings_of(model.path, images, tmp_path) == []


EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")


def transposed_experts(*ends):
    def change(tensors):
        for name in [name for name in tensors if name.endswith(ends)]:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()

    return change


@pytest.mark.parametrize("ends", [EXPERTS, EXPERTS[:1], EXPERTS[1:]])
def test_experts_are_read_by_their_shape(ends, files, images, tmp_path):
    """As published and as transformers 5 saves them."""
    model = files("moe_gqa")
    model.change_tensors(transposed_experts(*ends))
    compare("moe_gqa", model.path, images, tmp_path)


def test_tensors_that_the_model_has_not_are_named_once(files, images, tmp_path):
    model = files("smol_tied")
    extra = {"score.weight": torch.ones(2, 3), "v_head.summary.bias": torch.ones(1)}
    model.change_tensors(lambda tensors: tensors.update(extra))
    compare("smol_tied", model.path, images, tmp_path)
    (said,) = warnings_of(model.path, images, tmp_path)
    assert said.endswith("they are not read: score.weight [2, 3], v_head.summary.bias [1]")


def scaled(**rope):
    """For a config with its rotary parameters in rope_parameters."""

    def change(text):
        parameters = text["rope_parameters"]
        text["max_position_embeddings"] = rope.get("context", text["max_position_embeddings"])
        more = {key: value for key, value in rope.items() if key != "context"}
        parameters.get("full_attention", parameters).update(more)

    return change


def windowed(**fields):
    return lambda text: text.update(sliding_window=24, layer_types=None, **fields)


def longrope(pairs, **more):
    return scaled(
        rope_type="longrope",
        short_factor=[1 + 0.05 * pair for pair in range(pairs)],
        long_factor=[1 + 0.4 * pair for pair in range(pairs)],
        original_max_position_embeddings=48,
        **more,
    )


YARN = dict(rope_type="yarn", factor=4.0)
MORE_YARN = dict(YARN, beta_fast=16, beta_slow=2, truncate=False, mscale=0.7, mscale_all_dim=0.4)
# Checkpoint and decoder config; the contexts are shorter than the longest row.
DECODERS = {
    "yarn": ("llava_mistral", scaled(**YARN, original_max_position_embeddings=64)),
    "yarn_of_the_context": ("onevision", scaled(**YARN, context=128)),
    "yarn_with_all_options": (
        "llava_mistral",
        scaled(**MORE_YARN, original_max_position_embeddings=40),
    ),
    "yarn_with_its_attention": (
        "layout_qwen25",
        scaled(**YARN, original_max_position_embeddings=64, attention_factor=1.3),
    ),
    "yarn_interleaved": ("layout_qwen3", scaled(**YARN, original_max_position_embeddings=64)),
    "yarn_of_a_part_of_a_head": (
        "qwen35_gqa",
        scaled(**YARN, original_max_position_embeddings=64),
    ),
    "dynamic_of_a_part_of_a_head": (
        "qwen35_gqa",
        scaled(rope_type="dynamic", factor=8.0, context=40),
    ),
    "yarn_of_some_layers": ("gemma_gqa", scaled(**YARN, original_max_position_embeddings=64)),
    "dynamic": ("llava_mistral", scaled(rope_type="dynamic", factor=8.0, context=40)),
    "dynamic_mrope": ("layout_qwen3", scaled(rope_type="dynamic", factor=8.0, context=40)),
    "dynamic_of_internvl": ("intern_gqa", scaled(rope_type="dynamic", factor=2.0, context=100)),
    "longrope": ("llava_mistral", longrope(8)),
    "longrope_with_its_attention": ("onevision", longrope(8, attention_factor=1.1)),
    "longrope_mrope": ("layout_qwen25", longrope(8, factor=16.0)),
    "llama3": (
        "llava_mistral",
        scaled(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    "linear": ("layout_qwen3", scaled(rope_type="linear", factor=3.0)),
    "mrope": ("layout_qwen25", scaled(rope_type="mrope")),
    "window_of_mistral": ("llava_mistral", windowed()),
    "window_of_qwen2": ("onevision", windowed(use_sliding_window=True, max_window_layers=1)),
    "window_of_no_layer": ("onevision", windowed(use_sliding_window=True, max_window_layers=9)),
    "window_of_qwen3": (
        "intern_qwen3_norms",
        windowed(use_sliding_window=True, max_window_layers=1),
    ),
    "window_of_qwen25": ("layout_qwen25", windowed(use_sliding_window=True, max_window_layers=1)),
}


def decoder_files(files, case):
    name, change = DECODERS[case]
    model = files(name)
    text = json.loads((model.path / "config.json").read_text())["text_config"]
    change(text)
    model.config(**text)
    return name, model.path


@pytest.mark.parametrize("case", DECODERS)
def test_rows_under_a_window_or_a_scaling(case, files, images, tmp_path):
    name, path = decoder_files(files, case)
    compare(name, path, images, tmp_path)


@pytest.mark.parametrize(
    "case",
    ["yarn", "dynamic", "dynamic_mrope", "longrope", "longrope_mrope", "window_of_mistral"],
)
def test_answers_under_a_window_or_a_scaling(case, files, images, tmp_path):
    """With transformers' own cache: rotated keys stay unchanged, independent of later tokens."""
    name, path = decoder_files(files, case)
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    out = tmp_path / "out.jsonl"
    lft(
        "eval", "--model", path, "--data", rows, "--image-root", images, "--out", out,
        "--max-new-tokens", 12,
    )  # fmt: skip
    for item, line in zip(ITEMS, out.read_text().splitlines(), strict=True):
        peer = FamilyPeer(name, path)
        ids, extra = peer.inputs(item, images, generate=True)
        input_ids = torch.tensor([ids])
        inputs = dict(input_ids=input_ids, attention_mask=torch.ones(1, len(ids))) | extra
        if "image_grid_thw" in extra:
            inputs["mm_token_type_ids"] = (input_ids == peer.image_token).int()
        answer = peer.model.generate(max_new_tokens=12, do_sample=False, **inputs)[0, len(ids) :]
        want = peer.tokenizer.decode(answer, skip_special_tokens=True)
        assert json.loads(line)["answer"].strip() == want.strip(), item["id"]


@pytest.mark.parametrize("case", ["dynamic", "dynamic_mrope", "longrope", "window_of_mistral"])
def test_packed_rows_are_scaled_each_by_its_own_length(case, files, images, tmp_path):
    name, path = decoder_files(files, case)
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    losses = {}
    for kind, more in dict(
        alone=dict(batch_size=1, grad_accum=3),
        padded=dict(batch_size=3),
        packed=dict(batch_size=3, max_tokens_per_step=1024),
    ).items():
        recipe = make_recipe(
            name, tmp_path / kind, path, rows, images, train=dict(max_steps=2, **more)
        )
        lft("train", recipe)
        losses[kind] = [line["loss"] for line in step_lines(tmp_path / kind)]
    assert losses["padded"] == pytest.approx(losses["alone"], rel=1e-5)
    assert losses["packed"] == pytest.approx(losses["alone"], rel=1e-5)


def byte_vocabulary(path, special):
    """vocab.json and merges.txt of a byte-level BPE trained on the families' texts."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS.splitlines(), trainer)
    bpe.model.save(str(path))


TEXTS = [
    "What  is\tin   the photo? It's 2024, 3.14 and 100%.\n\n  naïve café ﬁ Å e\u0301",
    " leading space, 中文 текст 😀 \r\n x_y-z we'LL they'd",
    "\t\tdef f(x):\n        return x ** 2  # I've 12345 ｆｕｌｌ Ⅳ\n\n\n",
]
KINDS = {
    "qwen2": dict(tokenizer_class="Qwen2Tokenizer"),
    "qwen2_fast": dict(tokenizer_class="Qwen2TokenizerFast", pad_token="<|im_end|>"),
    "gpt2": dict(tokenizer_class="GPT2Tokenizer"),
    "gpt2_prefix": dict(tokenizer_class="GPT2TokenizerFast", add_prefix_space=True),
    "gpt2_bos": dict(tokenizer_class="GPT2Tokenizer", add_bos_token=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_and_merges_are_transformers_tokenizer(kind, files, images, tmp_path):
    model = files("layout_qwen25")
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        (model.path / name).unlink()
    byte_vocabulary(model.path, ["<|endoftext|>"])
    added = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    config = dict(KINDS[kind], eos_token="<|im_end|>", additional_special_tokens=added)
    config["added_tokens_decoder"] = {
        str(340 + number): dict(
            content=token, special=True, normalized=False, lstrip=False, rstrip=False,
            single_word=False,
        )
        for number, token in enumerate(added)
    }  # fmt: skip
    (model.path / "tokenizer_config.json").write_text(json.dumps(config))
    model.change("config.json", lambda data: data.update(image_token_id=344))
    peer = getattr(transformers, config["tokenizer_class"].removesuffix("Fast")).from_pretrained(
        model.path
    )
    rows = [
        dict(
            id=str(number),
            messages=[dict(role="user", content=text), dict(role="assistant", content="a")],
        )
        for number, text in enumerate(TEXTS)
    ]
    scored = scores(
        model.path, images, tmp_path, "--template", "plain",
        items=rows,
    )  # fmt: skip
    for text, line in zip(TEXTS, scored, strict=True):
        want = peer(text + "a")["input_ids"]
        assert line["input_ids"][: len(want)] == want, text
