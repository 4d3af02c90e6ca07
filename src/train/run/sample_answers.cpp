#include "src/train/run/sample_answers.h"

#include <algorithm>
#include <map>

#include "src/base/text.h"
#include "src/data/held_out.h"
#include "src/infer/evaluate.h"
#include "src/io/files.h"
#include "src/report/picture.h"

namespace lft::train {
namespace {

constexpr int64_t kAsked = 256, kBatch = 8;  // rows at the end, and of them at a time
constexpr int64_t kAnswerTokens = 64;

/// Up to `count` evenly spaced positions, starting with the first.
std::vector<int64_t> spread(int64_t size, int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(std::min(count, size)));
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int64_t>(i) * size / std::ssize(places);
  return places;
}

const data::Dataset& rows_of(const Run& run) {
  return run.data.eval ? *run.data.eval : *run.data.train;
}

std::string before_path(const Run& run) { return run.recipe.output_dir + "/answers_before.json"; }

/// How many rows the report shows with their answers.
int64_t most_shown(const Run& run) { return run.recipe.log.answers; }

/// How many rows are answered at the end: under preferences answers are shown, but not counted as
/// right.
int64_t most_asked(const Run& run) {
  return run.objective->sums_tokens() ? kAsked : most_shown(run);
}

/// The rows that are answered at the end, spread over all; of KTO those with a desirable answer.
std::vector<int64_t> asked_places(const Run& run) {
  std::vector<int64_t> places = spread(rows_of(run).size(), most_asked(run));
  if (learns_from_labels(run.recipe))
    std::erase_if(places, [&](int64_t row) { return rows_of(run).row(row).desirable != true; });
  return places;
}

/// Whether the run shows answers: those of random weights have no meaning.
bool answers_rows(const Run& run) {
  return most_shown(run) > 0 && run.recipe.model.init != recipe::ModelInit::kRandom;
}

/// `batch_size`: rows that are answered together. `phase`: shown meanwhile.
infer::EvalResult ask(Run& run, const data::Dataset& rows, int64_t batch_size,
                      const std::string& phase) {
  if (!answers_rows(run) || rows.size() == 0) return {};
  const infer::EvalOptions options{.batch_size = batch_size,
                                   .workers = 1,
                                   .max_tokens = run.recipe.train.max_tokens_per_step,
                                   .decode = {.max_new_tokens = kAnswerTokens, .on_token = {}},
                                   .loss = false,
                                   .compute = run.state.compute,
                                   .phase = phase};
  return infer::evaluate(run.model.model, rows, *run.data.tokenizer, run.data.encode, options);
}

int64_t figure_place(const objective::Objective& objective, const std::string& name) {
  const std::vector<std::string> names = objective.figure_names();
  return std::ranges::find(names, name) - names.begin();
}

/// The figures that the report shows of a pair. A margin to a reference is 0 before training.
report::PairFigures pair_figures(const Run& run, const infer::EvalRecord& record, bool trained) {
  const auto figure = [&](const char* name) {
    return record.figures.at(static_cast<size_t>(figure_place(*run.objective, name)));
  };
  if (record.figures.empty()) return {};
  const bool known = trained || !run.objective->uses_reference();
  return {.chosen = figure("logps_chosen"),
          .rejected = figure("logps_rejected"),
          .margin = known ? figure("reward_margin") : NAN};
}

/// Of each row its pair's figures, one pair a pass; empty for rows of single answers.
std::vector<report::PairFigures> score_shown(Run& run, const data::Dataset& rows, bool trained,
                                             const std::string& phase) {
  std::vector<report::PairFigures> figures;
  if (!learns_from_pairs(run.recipe) || !answers_rows(run)) return figures;
  const infer::EvalOptions options{.batch_size = 1,
                                   .workers = 1,
                                   .compute = run.state.compute,
                                   .preference = run.objective.get(),
                                   .phase = phase};
  figures.resize(static_cast<size_t>(rows.size()));
  for (const infer::EvalRecord& record :
       infer::evaluate(run.model.model, rows, *run.data.tokenizer, run.data.encode, options)
           .records)
    figures[static_cast<size_t>(record.index)] = pair_figures(run, record, trained);
  return figures;
}

/// As a record keeps them; null where not known.
io::Json figures_json(const report::PairFigures& figures) {
  return {figures.chosen, figures.rejected, figures.margin};
}

report::PairFigures figures_from(const io::Json& json) {
  const auto number = [&](size_t place) {
    return json.at(place).is_number() ? json.at(place).get<double>() : NAN;
  };
  return {number(0), number(1), number(2)};
}

/// The text of a row's rejected answer, from its tokens: prepared data has no others.
std::string rejected_text(const Run& run, const data::Dataset& rows, int64_t index) {
  const data::Sample pair = rows.get(index);
  const data::Sample& side = pair.rejected.at(0);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < side.labels.size(); ++i)
    if (side.labels[i] != -100) ids.push_back(side.input_ids[i]);
  return std::string(trimmed(run.data.tokenizer->decode(ids)));
}

/// The text in the report.
std::string answer_text(const infer::EvalRecord& record) {
  if (record.answered) return record.answer;
  return "(no answer: the model's output is not finite" +
         (record.bad->module.empty() ? ")" : ", from " + record.bad->module + " on)");
}

struct Before {
  std::string answer;
  report::PairFigures pair = {};
};
/// By row id; empty if nothing was recorded.
std::map<std::string, Before> read_before(const Run& run) {
  std::map<std::string, Before> rows;
  if (!io::path_exists(before_path(run))) return rows;
  try {
    for (const io::Json& one : io::read_json_file(before_path(run))) {
      Before& row = rows[one.at("id").get<std::string>()];
      row.answer = one.at("answer").get<std::string>();
      if (one.contains("pair")) row.pair = figures_from(one.at("pair"));
    }
  } catch (const std::exception&) {
    rows.clear();  // a damaged file only costs the report a column
  }
  return rows;
}

/// The first image of a row, and a note if it has more or if it is not shown as it is.
void add_image(const data::Dataset& rows, int64_t index, report::ReportAnswer& answer) {
  const int64_t images = rows.images_of(index);
  if (images == 0) return;
  report::Picture picture = report::shown_picture(rows.image_bytes(index, 0), answer.id);
  answer.image_png = std::move(picture.bytes);
  answer.note = std::move(picture.note);
  if (images > 1)
    answer.note = "the first of " + std::to_string(images) + " images" +
                  (answer.note.empty() ? "" : "; " + answer.note);
}

/// Positions of the shown rows among the evaluation's rows.
std::vector<int64_t> shown_places(const Run& run) {
  const std::vector<int64_t> asked = asked_places(run);
  std::vector<int64_t> shown;
  for (const int64_t place : spread(std::ssize(asked), most_shown(run)))
    shown.push_back(asked[static_cast<size_t>(place)]);
  return shown;
}

}  // namespace

AnswerCounts answer_counts(const Run& run) {
  const int64_t rows = answers_rows(run) ? rows_of(run).size() : 0;
  return {.shown = static_cast<double>(std::min(rows, most_shown(run))),
          .at_end = static_cast<double>(std::min(rows, most_asked(run))),
          .batch = static_cast<double>(kBatch),
          .most_tokens = static_cast<double>(kAnswerTokens)};
}

io::Json shown_answers(Run& run, const std::vector<infer::EvalRecord>& records,
                       const std::string& phase) {
  const data::Dataset& rows = rows_of(run);
  const std::vector<int64_t> places = shown_places(run);
  io::Json answers = io::Json::array();
  const bool pairs = learns_from_pairs(run.recipe);
  const auto add = [&](const infer::EvalRecord& record, int64_t row) {
    if (!record.answered && !record.bad) return;
    answers.push_back({{"id", record.id}, {"answer", answer_text(record)}});
    const auto scored = std::ranges::find(records, row, &infer::EvalRecord::index);
    if (pairs && scored != records.end() && !scored->figures.empty())
      answers.back()["pair"] = figures_json(pair_figures(run, *scored, /*trained=*/true));
  };
  const bool answered = std::ranges::any_of(records, &infer::EvalRecord::answered);
  for (const infer::EvalRecord& record : records) {
    if (answered && std::ranges::find(places, record.index) != places.end())
      add(record, record.index);
  }
  if (!answered) {  // one by one needs less memory than any step
    const infer::EvalResult result = ask(run, *data::select_rows(rows, places), 1, phase);
    for (const infer::EvalRecord& record : result.records)
      add(record, places[static_cast<size_t>(record.index)]);
  }
  return answers;
}

void record_answers_before(Run& run) {
  const data::Dataset& rows = rows_of(run);
  const std::vector<int64_t> places = shown_places(run);
  const std::unique_ptr<data::Dataset> shown = data::select_rows(rows, places);
  const std::string phase = "answers before training";
  const std::vector<report::PairFigures> pairs = score_shown(run, *shown, /*trained=*/false, phase);
  io::Json answers = io::Json::array();
  for (const infer::EvalRecord& record : ask(run, *shown, 1, phase).records) {
    if (!record.answered && !record.bad) continue;
    answers.push_back({{"id", record.id},
                       {"answer", answer_text(record)},
                       {"row", places[static_cast<size_t>(record.index)]},
                       {"question", record.question},
                       {"reference", record.reference}});
    if (pairs.empty()) continue;
    answers.back()["pair"] = figures_json(pairs[static_cast<size_t>(record.index)]);
    answers.back()["rejected"] = rejected_text(run, *shown, record.index);
  }
  io::write_file_atomic(before_path(run), io::json_text(answers, 2) + "\n");
}

std::string rows_name(const Run& run) {
  return run.data.eval ? "held-out rows" : "rows that it trained on (no data.eval)";
}

std::vector<report::ReportAnswer> rows_before(const Run& run) {
  std::vector<report::ReportAnswer> shown;
  if (!io::path_exists(before_path(run))) return shown;
  const data::Dataset& rows = rows_of(run);
  try {
    for (const io::Json& one : io::read_json_file(before_path(run))) {
      report::ReportAnswer answer{.id = one.at("id").get<std::string>(),
                                  .question = one.at("question").get<std::string>(),
                                  .reference = one.at("reference").get<std::string>(),
                                  .answer = {},
                                  .image_png = {},
                                  .before = one.at("answer").get<std::string>(),
                                  .answered = false};
      if (one.contains("pair"))
        answer.pair = {.rejected = one.at("rejected").get<std::string>(),
                       .before = figures_from(one.at("pair"))};
      const auto row = one.at("row").get<int64_t>();
      if (row >= 0 && row < rows.size() && rows.id(row) == answer.id) add_image(rows, row, answer);
      shown.push_back(std::move(answer));
    }
  } catch (const std::exception&) {
    shown.clear();  // a damaged file, or one of an older version
  }
  return shown;
}

SampleAnswers sample_answers(Run& run) {
  const data::Dataset& rows = rows_of(run);
  const std::unique_ptr<data::Dataset> asked = data::select_rows(rows, asked_places(run));
  SampleAnswers answers;
  answers.all = rows.size();
  answers.rows = rows_name(run);
  const std::map<std::string, Before> before = read_before(run);
  const std::vector<int64_t> places = spread(asked->size(), most_shown(run));
  const std::string phase = "answers after training";
  const std::vector<report::PairFigures> pairs = score_shown(run, *asked, /*trained=*/true, phase);
  const infer::EvalResult result = ask(run, *asked, kBatch, phase);
  answers.stopped = result.stopped;
  for (const infer::EvalRecord& record : result.records) {
    if (!record.answered && !record.bad) continue;
    if (pairs.empty()) {
      ++answers.asked;
      answers.right += record.match ? 1 : 0;
    }
    if (std::ranges::find(places, record.index) == places.end()) continue;
    report::ReportAnswer answer{.id = record.id,
                                .question = record.question,
                                .reference = record.reference,
                                .answer = answer_text(record),
                                .image_png = {},
                                .before = {}};
    const auto found = before.find(record.id);
    if (found != before.end()) answer.before = found->second.answer;
    if (!pairs.empty())
      answer.pair = {.rejected = rejected_text(run, *asked, record.index),
                     .before = found == before.end() ? report::PairFigures() : found->second.pair,
                     .after = pairs[static_cast<size_t>(record.index)]};
    add_image(*asked, record.index, answer);
    answers.shown.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace lft::train
