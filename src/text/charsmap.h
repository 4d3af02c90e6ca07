// The compiled normalisation rules of a SentencePiece model, which its library follows without a
// look at their bounds.
#pragma once
#include <string>
#include <string_view>

namespace lft::text {

/// Why the rules of a serialised model lead out of their own bytes; empty: they do not, or there
/// are none. Of every normalizer and denormalizer that the message has.
std::string charsmap_fault(std::string_view model);

}  // namespace lft::text
