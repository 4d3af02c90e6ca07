// The words of a caption, as in COCO's caption evaluation. Text only.
#pragma once
#include <string>
#include <vector>

namespace lft::infer {

/// Lower case, without punctuation, contractions in two: what Stanford's PTBTokenizer and the list
/// of marks that COCO takes out leave of plain English; signs and addresses are cut more simply.
std::vector<std::string> caption_words(const std::string& text);

}  // namespace lft::infer
