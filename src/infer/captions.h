// BLEU-4 and CIDEr of captions with several references, as in COCO's caption evaluation
// (pycocoevalcap). Text only.
#pragma once
#include <string>
#include <vector>

namespace lft::infer {

struct Caption {
  std::string answer;
  std::vector<std::string> references;  // at least one
};
struct CaptionScores {
  double bleu4 = 0, cider = 0;  // over all captions: from summed counts, and the mean of `ciders`
  std::vector<double> ciders = {};
};
/// Word frequencies come from these references, so captions are scored together, and a single one
/// has a CIDEr of 0.
CaptionScores score_captions(const std::vector<Caption>& captions);

}  // namespace lft::infer
