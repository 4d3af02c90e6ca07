// Metrics that compare an answer with references, as in benchmarks of vision-language models. Text
// only.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace lft::infer {

enum class Metric { kExact, kVqa, kAnls, kRelaxed, kChoice, kCaption };

/// "exact", "vqa", "anls", "relaxed", "choice", "caption"; nothing for another name.
std::optional<Metric> find_metric(const std::string& name);
const std::vector<std::string>& metric_names();
/// The name of the figure: the metric's name, or "cider" for captions.
std::string figure_name(Metric metric);
/// The figure that a word of train.keep_best compares, of which more is better: a metric's, or
/// "reward_accuracy"; empty for the evaluation loss and for "none".
std::string kept_figure(const std::string& keep_best);

/// In [0, 1], by `references`, at least one; nothing for kCaption (src/infer/captions.h).
///   exact    equal to a reference, both trimmed of white space
///   vqa      VQAv2: both normalised (punctuation, articles, numbers as words, contractions); the
///            mean over the references of min(1, equal ones among the others / 3); one reference
///            counts as ten alike
///   anls     1 - edit distance / longer length in code points, both in lower case; 0 below 0.5; of
///            the best reference
///   relaxed  ChartQA: numbers within 5% of the reference, else equal without case; of the best
///            reference
///   choice   the letters of both are equal; see choice_letter()
std::optional<double> score_answer(Metric metric, const std::string& answer,
                                   const std::vector<std::string>& references,
                                   const std::string& question);

/// The option that an answer to a multiple-choice question names: "B", "(b)", "B. a cat", "The
/// answer is B.", or the words of one of the question's options (lines "B. a cat"). 0: none.
char choice_letter(const std::string& answer, const std::string& question);

/// UTF-8 text in lower case; invalid UTF-8 does not change.
std::string lower_text(const std::string& text);
/// Split at white space.
std::vector<std::string> words_of(const std::string& text);

}  // namespace lft::infer
