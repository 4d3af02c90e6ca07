// tokenizer.json, as read by the export for llama.cpp.
#include "src/hf/exports/gguf_vocabulary.h"
#include "tests/fuzz/memory_folder.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool gguf_vocabulary(std::string_view bytes) {
  static MemoryFolder folder;
  return reads(ErrorKind::kInput, [&] {
    folder.put("tokenizer.json", bytes);
    const io::GgufKeys keys = hf::gguf_vocabulary(folder.path(), 512, "");
    expect(!keys.empty(), "keys of a vocabulary");
  });
}

}  // namespace lft::fuzz
