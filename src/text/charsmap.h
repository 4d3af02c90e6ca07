// Validates the compiled normalisation rules of a SentencePiece model, whose library uses them
// without bounds checks.
#pragma once
#include <string>
#include <string_view>

namespace lft::text {

/// The reason why the rules of a serialised model refer to bytes out of bounds; empty if they do
/// not, or if there are none. Checks every normalizer and denormalizer of the message.
std::string charsmap_fault(std::string_view model);

}  // namespace lft::text
