// The fuzz targets: each passes its bytes to the reader of one file format. The callers are
// independent of the formats.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/errors.h"

namespace lft::fuzz {

/// A reader violated its header's contract. Any other exception is a violation too: only
/// documented refusals are caught.
struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};

/// True: the reader took the bytes. False: it refused them.
bool arrow(std::string_view bytes);            // Parquet or Arrow, if built with LFT_ARROW
bool chat_template(std::string_view bytes);    // Jinja, rendered if possible
bool charsmap(std::string_view bytes);         // the normalisation rules of a tokenizer.model
bool config(std::string_view bytes);           // config.json of a model
bool gguf(std::string_view bytes);             // everything before the data of a GGUF, and tensors
bool gguf_vocabulary(std::string_view bytes);  // tokenizer.json, for an export
bool http(std::string_view bytes);             // a request to lft serve
bool image(std::string_view bytes);            // header, pixels and size
bool incident(std::string_view bytes);         // incident.json
bool index(std::string_view bytes);            // index of a data file, see fuzz_index.cpp
bool json(std::string_view bytes);             // whole and entry by entry
bool manifest(std::string_view bytes);         // of a checkpoint, as given and with a matching hash
bool metrics(std::string_view bytes);          // metrics.jsonl, as a report reads it
bool model_files(std::string_view bytes);      // from a model or adapter folder, see its source
bool prepared(std::string_view bytes);   // one file of a prepared directory, see fuzz_prepared.cpp
bool processor(std::string_view bytes);  // an image processor's file, with its model's config
bool recipe(std::string_view bytes);     // YAML
bool rows(std::string_view bytes);       // a dataset file, JSON array or JSON lines
bool safetensors(std::string_view bytes);  // header and tensors
bool saved_state(std::string_view bytes);  // state.json of a checkpoint
bool tar(std::string_view bytes);          // a tar file of samples, with correct checksums
bool tokenizer(std::string_view bytes);  // tokenizer.json; "tokenizer_config", "special_tokens_map"
                                         // and "added_tokens_map" are related

inline void expect(bool holds, const std::string& promise) {
  if (!holds) throw Broken("broken promise: " + promise);
}

/// Runs a reader. False if it refuses with an error of `kind` that a terminal can show.
template <typename Body>
bool reads(ErrorKind kind, Body body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    const std::string block = format_error(error);
    expect(error.kind() == kind, "the kind of this error: " + block);
    expect(std::none_of(
               block.begin(), block.end(),
               [](unsigned char byte) { return byte != '\n' && (byte < 0x20 || byte == 0x7f); }),
           "an error without control characters: " + block);
    return false;
  }
}

}  // namespace lft::fuzz
