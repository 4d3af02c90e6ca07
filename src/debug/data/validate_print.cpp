#include "src/debug/data/validate_print.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/data/validate.h"

namespace lft::debug {
namespace {

constexpr size_t kShown = 5;  // problems of a kind in the text; the JSON has all that were kept

struct FaultName {
  DataFault fault;
  const char* slug;
  const char* title;
};
constexpr FaultName kNames[kDataFaults] = {
    {DataFault::kFile, "unreadable_file", "a file of rows that cannot be read"},
    {DataFault::kRow, "malformed_row", "a malformed row"},
    {DataFault::kEmptyAnswer, "empty_answer", "an empty or missing answer"},
    {DataFault::kMarks, "image_marks", "<image> marks that do not fit the images"},
    {DataFault::kTokens, "tokens", "tokens that the model has not, or special ones in a text"},
    {DataFault::kImagePath, "image_path", "an image path that is not opened"},
    {DataFault::kMissingImage, "missing_image", "an image file that is not there"},
    {DataFault::kBrokenImage, "broken_image", "an image that cannot be decoded"},
    {DataFault::kCutImage, "image_behind_limit", "an image behind data.max_tokens"},
    {DataFault::kNoLabel, "no_supervised_token", "a row without a supervised token"},
    {DataFault::kEos, "unsupervised_eos", "a reply whose end token is not supervised"},
    {DataFault::kPrepared, "prepared_sample", "a prepared sample that cannot be used"},
    {DataFault::kTruncated, "truncated", "a row cut by data.max_tokens"},
    {DataFault::kDuplicateId, "duplicate_id", "an id that an earlier row has"},
    {DataFault::kDuplicateRow, "duplicate_row", "a row that says what an earlier one says"},
    {DataFault::kTrainedOn, "eval_row_in_train", "a row of data.eval that data.train has too"},
    {DataFault::kMarkInText, "mark_in_text", "a special token or turn mark inside a text"},
    {DataFault::kControl, "control_character", "NUL or a bidi control inside a text"},
    {DataFault::kContradiction, "contradiction",
     "another answer, or label, than an earlier row has"},
    {DataFault::kOneAnswer, "one_answer", "a file whose rows all have one answer"},
    {DataFault::kShifted, "shifted_answers", "answers that seem to belong to a neighbouring row"},
    {DataFault::kEqualAnswers, "equal_answers", "a pair whose two answers are equal"},
    {DataFault::kSpaceOnly, "space_only", "a pair whose answers differ only in white space"},
    {DataFault::kLongerChosen, "longer_chosen",
     "a chosen answer of more than 3 times the rejected one's length, which is learnt, too"},
    {DataFault::kOtherPrompt, "other_prompt", "a pair whose answers have different prompts"},
    {DataFault::kWhiteImage, "white_image", "an image that turns white"},
    {DataFault::kBlankImage, "blank_image", "a transparent image that becomes one flat colour"},
    {DataFault::kNarrowImage, "narrow_image", "an image of which hardly anything is left"},
    {DataFault::kDamagedScan, "damaged_scan", "a JPEG of which parts are damaged"},
};

const FaultName& name_of(DataFault fault) { return kNames[static_cast<size_t>(fault)]; }

/// "99.97"; never rounded up to 100 or down to 0, which mean all and none.
std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "0";
  if (part == whole) return "100";
  const double value = 100 * static_cast<double>(part) / static_cast<double>(whole);
  return format_number(part == 0 ? 0 : std::clamp(value, 0.01, 99.99), "%.2f");
}

std::string count_of(int64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string place(const std::string& where, const std::string& id) {
  return escape_text(where, 400) + (id.empty() ? "" : " (id " + quote_text(id, 80) + ")");
}

std::string figures_text(const DataFigures& f, const DataReport& report) {
  const std::string row = report.pairs ? "pair" : "row";
  std::string text =
      f.key + "  " + escape_text(f.path, 400) + ": " + count_of(f.rows, row) +
      (f.malformed > 0 ? ", " + std::to_string(f.malformed) + " of them malformed" : "") + "\n";
  const auto line = [&](const std::string& label, const std::string& rest) {
    text +=
        "  " + label + std::string(label.size() < 11 ? 11 - label.size() : 1, ' ') + rest + "\n";
  };
  line("tokens", std::to_string(f.tokens) + " in all; a " + row + " has " +
                     std::to_string(f.lengths[0]) + " to " + std::to_string(f.longest) + ", p50 " +
                     std::to_string(f.lengths[1]) + ", p90 " + std::to_string(f.lengths[2]) +
                     ", p95 " + std::to_string(f.lengths[3]) + ", p99 " +
                     std::to_string(f.lengths[4]));
  if (f.longest > 0)
    line("longest", std::to_string(f.longest) + " tokens: " + place(f.longest_where, f.longest_id));
  line("labels",
       percent(f.supervised, f.tokens) +
           "% of the tokens are supervised; rows without any: " + std::to_string(f.without_labels));
  line("replies",
       percent(f.replies_with_eos, f.replies) + "% of " + std::to_string(f.replies) +
           " end with a supervised " + quote_text(report.eos) +
           (f.replies_cut == 0 ? "" : "; " + std::to_string(f.replies_cut) + " are cut before it"));
  if (f.masked > 0)
    line("masked",
         count_of(f.masked, "more answer") + " by weight 0 or loss false: excluded from the loss");
  if (f.desirable + f.undesirable > 0)
    line("labelled", count_of(f.desirable, "row") + " desirable, " + std::to_string(f.undesirable) +
                         " undesirable");
  line("truncated",
       count_of(f.truncated, row) + " by data.max_tokens = " + std::to_string(report.max_tokens) +
           (f.truncated == 0 ? ""
                             : "; " + std::to_string(f.labels_lost) + " supervised tokens lost (" +
                                   percent(f.labels_lost, f.supervised + f.labels_lost) + "%), " +
                                   std::to_string(f.replies_cut) +
                                   (f.replies_cut == 1 ? " reply without its end"
                                                       : " replies without their end")));
  line("images", std::to_string(f.images));
  if (report.skips && f.bad > 0)
    line("left out", count_of(f.bad, "bad " + row) +
                         " by data.on_bad_sample: skip; at most data.max_bad = " +
                         std::to_string(report.max_bad) + " of a data set");
  return text;
}

/// The different pieces of advice for problems of one kind.
std::vector<std::string> advice_for(const std::vector<DataProblem>& problems) {
  constexpr size_t kMostAdvice = 3;
  std::vector<std::string> advice;
  for (const DataProblem& problem : problems) {
    const bool is_new = std::ranges::find(advice, problem.next) == advice.end();
    if (!problem.next.empty() && is_new && advice.size() < kMostAdvice)
      advice.push_back(problem.next);
  }
  return advice;
}

std::string problems_text(const DataReport& report, bool warnings) {
  std::string text;
  for (const auto& [fault, problems] : report.first) {
    if (is_warning(fault) != warnings) continue;
    const int64_t count = report.counts.at(fault);
    text += (warnings ? "warning  " : "error  ") + fault_title(fault) + ": " +
            std::to_string(count) + "\n";
    for (size_t i = 0; i < problems.size() && i < kShown; ++i) {
      text += "  " + place(problems[i].where, problems[i].id) + ": " +
              escape_text(problems[i].reason, 600) + "\n";
    }
    if (count > static_cast<int64_t>(kShown))
      text += "  and " + std::to_string(count - static_cast<int64_t>(kShown)) + " more\n";
    for (const std::string& next : advice_for(problems)) text += "  next: " + next + "\n";
  }
  return text;
}

double rate(int64_t count, const DataReport& report) {
  return report.seconds > 0 ? static_cast<double>(count) / report.seconds : 0;
}

int64_t row_count(const DataReport& report) {
  int64_t rows = 0;
  for (const DataFigures& figures : report.files) rows += figures.rows;
  return rows;
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

io::Json figures_json(const DataFigures& f) {
  return {{"key", f.key},
          {"path", f.path},
          {"rows", f.rows},
          {"malformed", f.malformed},
          {"bad_rows", f.bad},
          {"images", f.images},
          {"tokens", f.tokens},
          {"supervised_tokens", f.supervised},
          {"supervised_share", share(f.supervised, f.tokens)},
          {"rows_without_labels", f.without_labels},
          {"masked_answers", f.masked},
          {"desirable_rows", f.desirable},
          {"undesirable_rows", f.undesirable},
          {"replies", f.replies},
          {"replies_with_eos", f.replies_with_eos},
          {"eos_share", share(f.replies_with_eos, f.replies)},
          {"truncated_rows", f.truncated},
          {"supervised_tokens_lost", f.labels_lost},
          {"lost_share", share(f.labels_lost, f.supervised + f.labels_lost)},
          {"replies_cut", f.replies_cut},
          {"length",
           {{"min", f.lengths[0]},
            {"p50", f.lengths[1]},
            {"p90", f.lengths[2]},
            {"p95", f.lengths[3]},
            {"p99", f.lengths[4]},
            {"max", f.longest}}},
          {"longest", {{"where", f.longest_where}, {"id", f.longest_id}}}};
}

}  // namespace

bool is_warning(DataFault fault) { return fault >= DataFault::kTruncated; }
std::string fault_slug(DataFault fault) { return name_of(fault).slug; }
std::string fault_title(DataFault fault) { return name_of(fault).title; }

std::string data_report_text(const DataReport& report) {
  std::string text;
  for (const DataFigures& figures : report.files) text += figures_text(figures, report);
  text += "images  " + count_of(report.image_files, "file") + ", " +
          std::to_string(report.decoded) + " decoded\n";
  text += problems_text(report, /*warnings=*/false) + problems_text(report, /*warnings=*/true);
  text += count_of(report.errors(), "error") + ", " + count_of(report.warnings(), "warning") + "\n";
  return text + format_number(report.seconds, "%.1f s with ") + std::to_string(report.workers) +
         format_number(rate(report.image_files, report), " workers: %.0f images/s, ") +
         format_number(rate(row_count(report), report), "%.0f rows/s\n");
}

io::Json data_report_json(const DataReport& report) {
  io::Json files = io::Json::array(), problems = io::Json::array();
  for (const DataFigures& figures : report.files) files.push_back(figures_json(figures));
  for (const auto& [fault, kept] : report.first) {
    io::Json first = io::Json::array();
    for (const DataProblem& problem : kept) {
      first.push_back({{"where", problem.where},
                       {"id", problem.id.empty() ? io::Json() : io::Json(problem.id)},
                       {"reason", problem.reason},
                       {"next", problem.next.empty() ? io::Json() : io::Json(problem.next)}});
    }
    problems.push_back({{"kind", fault_slug(fault)},
                        {"severity", is_warning(fault) ? "warning" : "error"},
                        {"title", fault_title(fault)},
                        {"count", report.counts.at(fault)},
                        {"first", std::move(first)}});
  }
  return {{"errors", report.errors()},
          {"warnings", report.warnings()},
          {"max_tokens", report.max_tokens},
          {"eos", report.eos},
          {"files", std::move(files)},
          {"images", {{"files", report.image_files}, {"decoded", report.decoded}}},
          {"problems", std::move(problems)},
          {"timing",
           {{"seconds", report.seconds},
            {"workers", report.workers},
            {"images_per_s", rate(report.image_files, report)},
            {"rows_per_s", rate(row_count(report), report)}}}};
}

}  // namespace lft::debug
