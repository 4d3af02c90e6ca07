"""How vLLM and SGLang handle an adapter, and what they add to each weight:
their own published code, run without the servers.

Each function and class is extracted from its file in .deps/servers (scripts/servers.txt) and run
unchanged; its imports from the server are either extracted the same way or unused here.
"""

import __future__
import ast
import functools
import os
import sys
import types
import typing
from types import SimpleNamespace

import torch
from safetensors.torch import load_file

from tools import ROOT

SOURCES = ROOT / ".deps" / "servers"
QUIET = SimpleNamespace(
    **{name: lambda *_, **__: None for name in ["info", "info_once", "debug", "warning"]}
)


class Refusal(Exception):
    """The server does not load the adapter."""


def definitions(file, names, **given):
    """The named definitions of a file, with the definitions of the server's other modules."""

    def wanted(node):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return (getattr(node, "module", None) or node.names[0].name).split(".")[0] not in (
                "vllm",
                "sglang",
            )
        return getattr(node, "name", None) in names or any(
            getattr(target, "id", None) in names for target in getattr(node, "targets", [])
        )

    body = [node for node in ast.parse((SOURCES / file).read_text()).body if wanted(node)]
    space = dict(given, logger=QUIET, __name__=file)
    sys.modules[file] = types.ModuleType(file)  # where dataclasses look
    exec(
        compile(
            ast.Module(body, []),
            SOURCES / file,
            "exec",
            flags=__future__.annotations.compiler_flag,
            dont_inherit=True,
        ),
        space,
    )
    return {name: space[name] for name in names}


@functools.cache
def vllm():
    ranks = definitions("vllm/config/lora.py", ["MaxLoRARanks"])
    helper = definitions("vllm/lora/peft_helper.py", ["PEFTHelper"])
    names = definitions(
        "vllm/lora/utils.py", ["parse_fine_tuned_lora_name", "is_base_embedding_weights"]
    )
    weights = definitions(
        "vllm/lora/lora_weights.py", ["LoRALayerWeights"], PIN_MEMORY=False, **helper
    )
    model = definitions(
        "vllm/lora/lora_model.py", ["LoRAModel"], PIN_MEMORY=False, **helper, **names, **weights
    )
    return SimpleNamespace(**ranks, **helper, **model)


def vllm_updates(adapter, peft, rank):
    """{module: delta W} of an adapter for the model under `peft`,
    served with --max-lora-rank `rank`."""
    code = vllm()
    assert rank in typing.get_args(code.MaxLoRARanks)
    try:
        helper = code.PEFTHelper.from_local_dir(str(adapter), None)
        helper.validate_legal(SimpleNamespace(max_lora_rank=rank))
        last_names = {name.rsplit(".", 1)[-1] for name, _ in peft.base_model.model.named_modules()}
        model = code.LoRAModel.from_local_checkpoint(
            str(adapter), last_names, helper, lora_model_id=1, device="cpu"
        )
    except (ValueError, TypeError) as error:
        raise Refusal(str(error)) from error
    updates = {}
    for name, lora in model.loras.items():
        lora.optimize()
        assert lora.lora_a.shape[0] == lora.rank <= rank
        updates[name] = lora.lora_b @ lora.lora_a
    return updates


@functools.cache
def sglang():
    config = definitions("sglang/srt/lora/lora_config.py", ["LoRAConfig"])
    layer = definitions("sglang/srt/layers/utils/common.py", ["get_layer_id"])
    utils = definitions(
        "sglang/srt/lora/utils.py",
        [
            "get_normalized_target_modules",
            "get_stacked_multiply",
            "get_target_module_name",
            "get_default_hidden_dim",
            "DSA_INDEXER_LORA_NAMES",
        ],
    )
    for name in [
        "sglang",
        "sglang.srt",
        "sglang.srt.lora",
        "sglang.srt.lora.utils",
    ]:  # imported by _process_weight
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["sglang.srt.lora.utils"].__dict__.update(utils)
    lora = definitions(
        "sglang/srt/lora/lora.py",
        ["LoRALayer", "LoRAAdapter", "_ROUTED_EXPERT_PATTERN"],
        **config,
        **layer,
    )
    manager = definitions(
        "sglang/srt/lora/lora_manager.py", ["LoRAManager"], **config, **utils, **lora
    )
    return SimpleNamespace(**config, **utils, **lora, **manager)


def sglang_updates(adapter, text_config):
    """{module: delta W} of an adapter for a decoder of this config;
    q, k, v and gate, up as one matrix each."""
    code = sglang()
    try:
        config = code.LoRAConfig(str(adapter))
        manager = SimpleNamespace(
            attn_dp_enabled=False,
            lora_refs={},
            configs={"one": config},
            num_pinned_loras=0,
            max_loras_per_batch=8,
            lora_added_tokens_size=0,
            base_model=torch.nn.Module(),
        )
        ref = SimpleNamespace(lora_name="one", lora_path=str(adapter), pinned=False)
        code.LoRAManager.validate_new_adapter(manager, config, ref)
        code.LoRAManager.init_lora_shapes(manager)
        loaded = code.LoRAAdapter("one", config, text_config, None, None)
        loaded.initialize_weights_from_tensors(
            load_file(os.path.join(adapter, "adapter_model.safetensors"))
        )
        updates = {}
        for index, layer in enumerate(loaded.layers):
            for name, a in layer.weights.items():
                if "lora_A" not in name:
                    continue
                target = code.get_target_module_name(name, manager.target_modules)
                into, out_of = code.get_default_hidden_dim(target, text_config, index)
                b, count = (
                    layer.weights[name.replace("lora_A", "lora_B")],
                    code.get_stacked_multiply(target),
                )
                # load_lora_weight_to_buffer compares these shapes.
                if tuple(a.shape) != (config.r * count, into) or tuple(b.shape) != (
                    out_of,
                    config.r,
                ):
                    raise Refusal(f"{name}: {tuple(a.shape)}, {tuple(b.shape)}")
                updates[name.split(".lora_A")[0]] = (
                    scaled(a, b, count, text_config) * loaded.scaling
                )
        for name in manager.target_modules:
            code.get_default_hidden_dim(name, text_config, 0)
    except (ValueError, KeyError, AssertionError, NotImplementedError, TypeError) as error:
        raise Refusal(f"{type(error).__name__}: {error}") from error
    return updates


def scaled(a, b, count, config):
    """B A of each of the stacked matrices, in order."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
    rows = [head * number for number in heads] if count == 3 else [b.shape[0] // count] * count
    return torch.cat([part_b @ part_a for part_a, part_b in zip(a.chunk(count), b.split(rows))])
