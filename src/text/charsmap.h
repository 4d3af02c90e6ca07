// Checks the compiled normalisation rules of a SentencePiece model, which its library follows
// without checking bounds.
#pragma once
#include <string>
#include <string_view>

namespace lft::text {

/// The reason why the rules of a serialised model refer to bytes out of their bounds; empty: they
/// do not, or there are none. Checks every normalizer and denormalizer of the message.
std::string charsmap_fault(std::string_view model);

}  // namespace lft::text
