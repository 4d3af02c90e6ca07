// Captions beside several references: BLEU-4 and CIDEr as COCO's caption evaluation
// (pycocoevalcap) computes them. Text only.
#pragma once
#include <string>
#include <vector>

namespace lft::infer {

struct Caption {
  std::string answer;
  std::vector<std::string> references;  // at least one
};
struct CaptionScores {
  double bleu4 = 0, cider = 0;  // of all: of summed counts, and the mean of `ciders`
  std::vector<double> ciders = {};
};
/// Words are rare or common by these references: captions are judged together, and one alone has a
/// CIDEr of 0.
CaptionScores score_captions(const std::vector<Caption>& captions);

}  // namespace lft::infer
