// The README.md of what a run hands out: whose it is, and Python that asks it as lft generate does.

#include <algorithm>

#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/io/json.h"
#include "src/text/chat_template.h"

namespace lft::hf {
namespace {

std::string python_string(const std::string& text) { return io::Json(text).dump(); }

/// `"USER: <image>\n" + QUESTION + " ASSISTANT:"`, as the template writes it.
std::string python_prompt(const std::string& template_name, const std::string& mark) {
  constexpr char kQuestion = '\x01';
  std::string text =
      text::render(template_name, {{std::string("<image>\n") + kQuestion, ""}}, "", true).text;
  text.replace(text.find("<image>"), 7, mark);
  const size_t at = text.find(kQuestion);
  const std::string after = text.substr(at + 1);
  return python_string(text.substr(0, at)) + " + QUESTION" +
         (after.empty() ? "" : " + " + python_string(after));
}

constexpr const char* kPad = R"(# image_fit: pad, a square of the processor's mean colour around it
side = max(image.size)
colour = tuple(int(255 * mean) for mean in processor.image_processor.image_mean)
square = Image.new("RGB", (side, side), colour)
square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
image = square
)";
constexpr const char* kCrop = "# image_fit: crop, which the processor does by itself\n";

/// Whether a vision tower is saved under names that only newer versions of transformers give it.
bool saves_renamed(const std::vector<std::string>& modules, const family::ModelConfig& config) {
  const family::Family& family = *config.family;
  const std::vector<std::string> vision = family.modules_of_scope("vision");
  const std::vector<family::TensorSpec> tensors = family.tensors(config);
  return !vision.empty() && std::ranges::find(modules, vision[0]) != modules.end() &&
         std::ranges::any_of(tensors, [&](const family::TensorSpec& tensor) {
           return tensor.name.starts_with(family::kVision) &&
                  family.whole_name(tensor.name) != family.peft_name(tensor.name);
         });
}

/// `loads`: the lines that make `model` of base and FOLDER, `imports` what they need.
std::string python_use(const AdapterNotes& notes, const family::ModelConfig& config,
                       const std::string& imports, const std::string& loads) {
  if (!text::is_template(notes.template_name)) return "";
  const std::string class_name = config.family->transformers_class(config);
  return "Trained with the template `" + notes.template_name + "` and images fitted by `" +
         notes.image_fit +
         "`; other choices give other answers. This asks\nas `lft generate` does: set the four "
         "names, and the dtype that your device likes.\n\n```python\nimport torch\n" +
         imports + "from PIL import Image, ImageOps\nfrom transformers import AutoProcessor, " +
         class_name + "\n\nBASE = " + python_string(notes.base_path) +
         "\nFOLDER = \".\"  # this one\nIMAGE = \"cat.jpg\"\nQUESTION = \"What is this?\"\n\n"
         "processor = AutoProcessor.from_pretrained(BASE)\n"
         "model = " +
         class_name + ".from_pretrained(BASE)\n" + loads +
         "model = model.float().eval()\n\n"
         "image = ImageOps.exif_transpose(Image.open(IMAGE)).convert(\"RGB\")\n" +
         (notes.image_fit == "pad"    ? kPad
          : notes.image_fit == "crop" ? kCrop
                                      : "") +
         "prompt = " + python_prompt(notes.template_name, config.family->processor_mark()) +
         "\ninputs = processor(images=image, text=prompt, return_tensors=\"pt\")\n"
         "with torch.inference_mode():\n"
         "    ids = model.generate(**inputs, max_new_tokens=256, do_sample=False)\n"
         "print(processor.decode(ids[0, inputs[\"input_ids\"].shape[1]:], "
         "skip_special_tokens=True).strip())\n```\n";
}

}  // namespace

std::string adapter_readme(const std::string& rank, const std::vector<std::string>& modules,
                           const AdapterNotes& notes, const family::ModelConfig& config) {
  std::string text = "# LoRA adapter\n\nA PEFT adapter for `" + notes.base_path +
                     "`, written by lft: rank " + rank + ".\n";
  for (const std::string& module : modules)
    text += "`" + module + "` was trained whole and is saved with it.\n";
  const bool vision = saves_renamed(modules, config);
  return text + "PEFT needs transformers " + config.family->oldest_transformers() + " or newer" +
         (vision ? ", and 5.6 or newer for the saved vision tower.\n\n" : ".\n\n") +
         python_use(notes, config, "from peft import PeftModel\n",
                    "model = PeftModel.from_pretrained(model, FOLDER)\n");
}

std::string parts_readme(const std::vector<std::string>& full, const AdapterNotes& notes,
                         const family::ModelConfig& config) {
  return "# Parts of a model\n\nThe " + join(full, " and ") + " of `" + notes.base_path +
         "`, trained whole by lft. Not a PEFT adapter: there is no LoRA in it.\n\n`lft merge "
         "--adapter THIS_FOLDER --out MODEL` writes the whole model for transformers; `lft "
         "generate`, `lft eval` and\n`lora.init_from` take the folder as it is.\n\n" +
         python_use(notes, config, "from safetensors.torch import load_file\n",
                    "unknown = model.load_state_dict(load_file(FOLDER + \"/parts.safetensors\"), "
                    "strict=False).unexpected_keys\nassert not unknown, unknown\n");
}

}  // namespace lft::hf
