// The small files of a model folder and an adapter folder. The first byte is the kind of the
// rest: 'c' config.json, 'p' preprocessor_config.json, 'P' processor_config.json, 't'
// tokenizer_config.json, 's' special_tokens_map.json, 'a' added_tokens.json, 'g'
// generation_config.json, 'j' chat_template.json, 'i' the weights' index; 'A' adapter_config.json,
// 'n' lft_adapter.json.
#include "hf/support.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/model_dir.h"
#include "src/io/files.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/fuzz/targets.h"
#include "train/tiny_run.h"

namespace lft::fuzz {
using namespace lft::io;
namespace {

constexpr std::pair<char, const char*> kModelFiles[] = {{'c', "config.json"},
                                                        {'p', "preprocessor_config.json"},
                                                        {'P', "processor_config.json"},
                                                        {'t', "tokenizer_config.json"},
                                                        {'s', "special_tokens_map.json"},
                                                        {'a', "added_tokens.json"},
                                                        {'g', "generation_config.json"},
                                                        {'j', "chat_template.json"},
                                                        {'i', "model.safetensors.index.json"}};
constexpr std::pair<char, const char*> kAdapterFiles[] = {{'A', "adapter_config.json"},
                                                          {'n', "lft_adapter.json"}};

/// The model and the adapter in which one file is replaced each time.
struct Folders {
  MemoryFolder model, adapter;
  std::map<char, std::string> sound;

  Folders() {
    const test::TempDir made;
    test::write_tiny_llava(made.file("model"),
                           {.shards = 2, .image_token = 260, .vocab = 264, .max_positions = 512});
    for (const std::string& name : list_dir(made.file("model")))
      if (name.ends_with(".safetensors"))
        model.put(name, read_file(made.file("model") + "/" + name));
    model.put("tokenizer.json", test::byte_tokenizer().dump());
    sound = {{'c', read_file(made.file("model") + "/config.json")},
             {'i', read_file(made.file("model") + "/model.safetensors.index.json")},
             {'t', R"({"eos_token": "</s>", "bos_token": "<s>"})"},
             {'n', R"({"base_path": "base", "base_fingerprint": "", "template": "plain",)"
                   R"( "image_fit": "pad"})"}};
    const std::string with = test::adapter_in("d1").write(made.file("adapter"));
    adapter.put("adapter_model.safetensors", read_file(with + "/adapter_model.safetensors"));
    sound['A'] = read_file(with + "/adapter_config.json");
    for (const auto& [key, name] : kModelFiles)
      model.put(name, sound.contains(key) ? sound[key] : "{}");
    for (const auto& [key, name] : kAdapterFiles) adapter.put(name, sound[key]);
    open();  // otherwise every file would be refused for another one
  }

  void open() const {
    const hf::ModelDir dir = hf::ModelDir::open(model.path());
    const auto tokenizer = text::Tokenizer::load(model.path());
    const data::EncodeOptions options = data::encode_options(
        model.path(), dir.config, *tokenizer,
        {.settings = {.template_name = "llava-hf", .image_fit = "pad"}, .max_tokens = 64}, nullptr);
    expect(options.images != nullptr && options.chat != nullptr, "a processor and a template");
    const hf::AdapterDir read = hf::AdapterDir::open(adapter.path());
    hf::read_adapter(read, dir.config);
  }
};

}  // namespace

bool model_files(std::string_view bytes) {
  static Folders folders;
  const char which = bytes.empty() ? ' ' : bytes[0];
  const auto try_with = [&](MemoryFolder& folder, const char* name) {
    folder.put(name, bytes.substr(1));
    const bool taken = reads(ErrorKind::kInput, [&] { folders.open(); });
    const auto sound = folders.sound.find(which);
    folder.put(name, sound == folders.sound.end() ? "{}" : sound->second);
    return taken;
  };
  for (const auto& [key, name] : kModelFiles)
    if (key == which) return try_with(folders.model, name);
  for (const auto& [key, name] : kAdapterFiles)
    if (key == which) return try_with(folders.adapter, name);
  return false;
}

}  // namespace lft::fuzz
