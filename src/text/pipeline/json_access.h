// Typed access to tokenizer files: an absent key takes the default, a mistyped one is kInput with
// its location.
#pragma once
#include <string>

#include "src/io/json.h"

namespace lft::text {

/// Without `next` the advice is to download the files again.
[[noreturn]] void bad_tokenizer(const std::string& where, const std::string& what,
                                const std::string& found = {}, const std::string& expected = {},
                                const std::string& next = {});
/// "tokenizer.json: normalizer of type X is not supported".
[[noreturn]] void unsupported_component(const std::string& where, const std::string& component,
                                        const std::string& type);

bool is_set(const io::Json& object, const std::string& key);  // the key is present and not null
bool flag_or(const io::Json& object, const std::string& key, bool otherwise,
             const std::string& where);
std::string text_or(const io::Json& object, const std::string& key, const std::string& otherwise,
                    const std::string& where);
/// "type" of a component.
std::string type_of(const io::Json& object, const std::string& where);
const io::Json& array_of(const io::Json& object, const std::string& key, const std::string& where);

}  // namespace lft::text
