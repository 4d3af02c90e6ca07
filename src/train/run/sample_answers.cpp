#include "src/train/run/sample_answers.h"

#include <algorithm>
#include <map>

#include "src/data/held_out.h"
#include "src/infer/evaluate.h"
#include "src/io/files.h"
#include "src/report/html.h"

namespace lft::train {
namespace {

constexpr int64_t kShown = 8, kAsked = 256;
constexpr int64_t kAnswerTokens = 64;

/// Up to `count` places at even distances, from the first on.
std::vector<int64_t> spread(int64_t size, int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(std::min(count, size)));
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int64_t>(i) * size / std::ssize(places);
  return places;
}

/// The rows that are answered at the end.
std::unique_ptr<data::Dataset> asked_rows(const data::Dataset& rows) {
  return data::select_rows(rows, spread(rows.size(), kAsked));
}

const data::Dataset& rows_of(const Run& run) {
  return run.inputs.data.eval ? *run.inputs.data.eval : *run.inputs.data.train;
}

std::string before_path(const Run& run) {
  return run.inputs.recipe.output_dir + "/answers_before.json";
}

/// `batch_size`: rows that are answered together.
std::vector<infer::EvalRecord> ask(Run& run, const data::Dataset& rows, int64_t batch_size) {
  const infer::EvalOptions options{.batch_size = batch_size,
                                   .workers = 1,
                                   .max_tokens = run.inputs.recipe.train.max_tokens_per_step,
                                   .max_new_tokens = kAnswerTokens,
                                   .loss = false,
                                   .compute = run.state.compute};
  return infer::evaluate(run.model.model, rows, *run.inputs.data.tokenizer, run.inputs.data.encode,
                         options)
      .records;
}

/// By row id; empty where nothing was recorded.
std::map<std::string, std::string> read_before(const Run& run) {
  std::map<std::string, std::string> answers;
  if (!io::path_exists(before_path(run))) return answers;
  try {
    for (const io::Json& one : io::read_json_file(before_path(run)))
      answers[one.at("id").get<std::string>()] = one.at("answer").get<std::string>();
  } catch (const std::exception&) {
    answers.clear();  // a damaged file costs the report a column
  }
  return answers;
}

}  // namespace

void record_answers_before(Run& run) {
  const std::unique_ptr<data::Dataset> asked = asked_rows(rows_of(run)),
                                       shown =
                                           data::select_rows(*asked, spread(asked->size(), kShown));
  io::Json before = io::Json::array();
  for (const infer::EvalRecord& record : ask(run, *shown, 1)) {  // less memory than any step
    if (record.answered) before.push_back({{"id", record.id}, {"answer", record.answer}});
  }
  io::write_file_atomic(before_path(run),
                        before.dump(2, ' ', false, io::Json::error_handler_t::replace) + "\n");
}

SampleAnswers sample_answers(Run& run) {
  const data::Dataset& rows = rows_of(run);
  const std::unique_ptr<data::Dataset> asked = asked_rows(rows);
  SampleAnswers answers;
  answers.all = rows.size();
  answers.rows = run.inputs.data.eval ? "held-out rows" : "rows that it trained on (no data.eval)";
  const std::map<std::string, std::string> before = read_before(run);
  const std::vector<int64_t> places = spread(asked->size(), kShown);
  for (const infer::EvalRecord& record : ask(run, *asked, kShown)) {
    if (!record.answered) continue;
    ++answers.asked;
    answers.right += record.match ? 1 : 0;
    if (std::ranges::find(places, record.index) == places.end()) continue;
    report::ReportAnswer answer{.id = record.id,
                                .question = record.question,
                                .reference = record.reference,
                                .answer = record.answer,
                                .image_png = {},
                                .before = {}};
    if (const auto found = before.find(record.id); found != before.end())
      answer.before = found->second;
    const std::vector<std::string> images = asked->image_paths(record.index);
    if (!images.empty()) answer.image_png = report::read_image(images.front());
    answers.shown.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace lft::train
