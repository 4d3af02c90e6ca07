#include "src/hf/adapter/adapter_readme.h"

#include <algorithm>
#include <filesystem>

#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/interop/interop.h"
#include "src/io/json.h"
#include "src/text/chat/named_form.h"

namespace lft::hf {
namespace {

std::string python_string(const std::string& text) { return io::Json(text).dump(); }

/// The settings as text, each under its key in a recipe's data section.
std::string settings_text(const family::InputSettings& input) {
  std::vector<std::string> items;
  family::for_each_setting([&](const std::string& key, auto member) {
    io::Json value = input.*member;
    if (!family::is_set(input.*member) || value == 0) return;
    if (key == "template")  // for a file only its name: it is in the adapter's folder
      value = std::filesystem::path(value.get<std::string>()).filename().string();
    items.push_back("`" + key + ": " +
                    (value.is_string() ? value.get<std::string>() : value.dump()) + "`");
  });
  return join(items);
}

/// `"USER: <image>\n" + QUESTION + " ASSISTANT:"`, in the style of a named form.
std::string form_prompt(const std::string& form, const std::string& mark) {
  constexpr char kQuestion = '\x01';
  const text::Conversation ask{text::messages_of({{std::string("<image>\n") + kQuestion, ""}})};
  std::string text = text::named_form(form, "", mark)->render(ask, /*generate=*/true).text;
  text.replace(text.find("<image>"), 7, mark);
  const size_t at = text.find(kQuestion);
  const std::string after = text.substr(at + 1);
  return python_string(text.substr(0, at)) + " + QUESTION" +
         (after.empty() ? "" : " + " + python_string(after));
}

/// Python lines that create `prompt` and `inputs` from `image` and QUESTION.
std::string python_prompt(const family::InputSettings& input, const std::string& mark) {
  if (text::is_named_form(input.template_name))
    return "prompt = " + form_prompt(input.template_name, mark) +
           "\ninputs = processor(images=image, text=prompt, return_tensors=\"pt\")\n";
  std::string args;
  if (!input.template_args.empty())
    args = ", **json.loads(" + python_string(input.template_args) + ")";
  return R"(content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
prompt = processor.apply_chat_template(
    [{"role": "user", "content": content}], add_generation_prompt=True,
    chat_template=open(FOLDER + "/chat_template.jinja").read())" +
         args + R"()
bos = processor.tokenizer.bos_token
inputs = processor(images=image, text=prompt, return_tensors="pt",
                   add_special_tokens=bos is None or not prompt.startswith(bos))
)";
}

/// The hub name of a model in the hub's cache (.../models--OWNER--NAME/snapshots/REVISION), or "".
std::string hub_name(const std::string& path) {
  constexpr std::string_view kBegin = "/models--", kEnd = "/snapshots/";
  const size_t end = path.rfind(kEnd), begin = path.rfind(kBegin, end);
  if (end == std::string::npos || begin == std::string::npos) return "";
  std::string name = path.substr(begin + kBegin.size(), end - begin - kBegin.size());
  const size_t slash = name.find("--");
  return slash == std::string::npos ? name : name.replace(slash, 2, "/");
}

/// The header of a model card. The hub accepts only its own model names in base_model.
std::string model_card(const std::string& library, const AdapterNotes& notes,
                       const std::vector<std::string>& tags) {
  const std::string hub = hub_name(notes.base_path);
  const std::string base = python_string(hub.empty() ? notes.base_path : hub);
  std::string text = "---\nbase_model: " + base +
                     (hub.empty() ? "  # before an upload: the base's name on the hub" : "") +
                     "\nlibrary_name: " + library + "\npipeline_tag: image-text-to-text\ntags:\n";
  for (const std::string& tag : tags) text += "- " + tag + "\n";
  return text + "---\n\n";
}

/// Converts `image` to RGB.
std::string python_colours(const std::string& alpha) {
  if (alpha != "white") return ".convert(\"RGB\")\n";
  return R"(.convert("RGBA")
ground = Image.new("RGB", image.size, "white")  # alpha: white
ground.paste(image, mask=image.getchannel("A"))
image = ground
)";
}

constexpr const char* kPad = R"(# image_fit: pad, a square of the processor's mean colour around it
side = max(image.size)
colour = tuple(int(255 * mean) for mean in processor.image_processor.image_mean)
square = Image.new("RGB", (side, side), colour)
square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
image = square
)";
constexpr const char* kCrop =
    "processor.image_processor.do_pad = False  # image_fit: crop, as the processor does then\n";
constexpr const char* kNative = "# image_fit: native, which the processor does by itself\n";

/// The changes that an image needs before the processor.
std::string python_fit(const std::string& fit) {
  return fit == "pad" ? kPad : fit == "crop" ? kCrop : kNative;
}

/// Whether lft treats special tokens in a question as plain text, which transformers cannot do
/// within a prompt.
constexpr const char* kPlainQuestion =
    R"(special = [str(t) for t in processor.tokenizer.added_tokens_decoder.values() if t.special]
assert not any(token in QUESTION for token in special), "lft reads special tokens here as text"
)";

/// Whether a vision tower is saved under names that only newer versions of transformers use.
bool saves_renamed(const std::vector<std::string>& modules, const family::ModelConfig& config) {
  const family::Family& family = *config.family;
  const std::vector<std::string> vision = family.names.modules_of_scope("vision");
  const std::vector<family::TensorSpec> tensors = family.layout(config).tensors;
  return !vision.empty() && std::ranges::find(modules, vision[0]) != modules.end() &&
         std::ranges::any_of(tensors, [&](const family::TensorSpec& tensor) {
           return tensor.name.starts_with(family::kVision) &&
                  family.names.whole_name(tensor.name) != family.names.peft_name(tensor.name);
         });
}

/// `loads`: the lines that load `model` from base and FOLDER; `imports`: their imports; `packages`:
/// the needed packages that transformers does not require. FOLDER is `folder`.
std::string python_use(const AdapterNotes& notes, const family::ModelConfig& config,
                       const std::string& folder, const std::string& packages,
                       const std::string& imports, const std::string& loads) {
  const family::InputSettings& input = notes.input;
  if (input.template_name.empty()) return "";
  const std::string class_name = transformers_class(config);
  if (class_name.empty())
    return "Trained with " + settings_text(input) +
           "; other choices give other answers. transformers loads the base with the code that "
           "comes with it\n(`trust_remote_code=True`).\n";
  return "Trained with " + settings_text(input) +
         "; other choices give other answers. This asks as\n`lft generate` does, from any folder: "
         "set the four names, and the dtype that your device likes.\nIt needs\n\n```\npip install "
         "torch torchvision pillow \"transformers>=" +
         oldest_transformers(config) + "\"" + packages + more_packages(config) +
         "\n```\n\n```python\n" + (input.template_args.empty() ? "" : "import json\n") +
         "import torch\n" + imports +
         "from PIL import Image, ImageOps\nfrom transformers import AutoProcessor, " + class_name +
         "\n\nBASE = " + python_string(notes.base_path) + "\nFOLDER = " + python_string(folder) +
         "\nIMAGE = \"cat.jpg\"\nQUESTION = \"What is this?\"\n\n"
         "processor = AutoProcessor.from_pretrained(BASE" +
         processor_arguments(config, input) +
         ")\n"
         "model = " +
         class_name + ".from_pretrained(BASE)\n" + loads +
         "model = model.float().eval()\n\n"
         "image = ImageOps.exif_transpose(Image.open(IMAGE))" +
         python_colours(input.alpha) + python_fit(input.image_fit) +
         (input.special_tokens == "text" ? kPlainQuestion : "") +
         python_prompt(input, config.family->processor_mark) +
         "with torch.inference_mode():\n"
         "    ids = model.generate(\n"
         "        **inputs, max_new_tokens=256, do_sample=False, repetition_penalty=1.0\n"
         "    )\n"
         "print(processor.decode(ids[0, inputs[\"input_ids\"].shape[1]:], "
         "skip_special_tokens=True).strip())\n```\n";
}

}  // namespace

std::string adapter_readme(const std::string& rank, const std::vector<std::string>& modules,
                           const AdapterNotes& notes, const family::ModelConfig& config,
                           const std::string& folder) {
  const std::string hub = hub_name(notes.base_path);
  std::vector<std::string> tags = {"lora", "transformers", "lft"};
  if (!hub.empty()) tags.insert(tags.begin(), "base_model:adapter:" + hub);
  std::string text = model_card("peft", notes, tags) + "# LoRA adapter\n\nA PEFT adapter for `" +
                     notes.base_path + "`, written by lft: rank " + rank + ".\n";
  for (const std::string& module : modules)
    text += "`" + module + "` was trained whole and is saved with it.\n";
  const bool vision = saves_renamed(modules, config);
  return text + "PEFT needs transformers " + oldest_transformers(config) + " or newer" +
         (vision ? ", and 5.6 or newer for the saved vision tower.\n\n" : ".\n\n") +
         python_use(notes, config, folder, " peft", "from peft import PeftModel\n",
                    "model = PeftModel.from_pretrained(model, FOLDER)\n");
}

std::string parts_readme(const std::vector<std::string>& full, const AdapterNotes& notes,
                         const family::ModelConfig& config, const std::string& folder) {
  return model_card("transformers", notes, {"lft"}) + "# Parts of a model\n\nThe " +
         join(full, " and ") + " of `" + notes.base_path +
         "`, trained whole by lft. Not a PEFT adapter: there is no LoRA in it.\n\n`lft merge "
         "--adapter THIS_FOLDER --out MODEL` writes the whole model for transformers; `lft "
         "generate`, `lft eval` and\n`lora.init_from` take the folder as it is.\n\n" +
         python_use(notes, config, folder, " safetensors",
                    "from safetensors.torch import load_file\n",
                    "unknown = model.load_state_dict(load_file(FOLDER + \"/parts.safetensors\"), "
                    "strict=False).unexpected_keys\nassert not unknown, unknown\n");
}

}  // namespace lft::hf
