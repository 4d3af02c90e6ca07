// The words of a caption, as in COCO's caption evaluation. Text only.
#pragma once
#include <string>
#include <vector>

namespace lft::infer {

/// Words in lower case without punctuation, with contractions split, as by Stanford's PTBTokenizer
/// and COCO's list of punctuation for plain English; signs and addresses are tokenised more simply.
std::vector<std::string> caption_words(const std::string& text);

}  // namespace lft::infer
