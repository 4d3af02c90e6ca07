#include "src/train/run/eval_incident.h"

#include "src/base/text.h"
#include "src/train/machine/precision.h"
#include "src/train/run/incident.h"

namespace lft::train {
namespace {

constexpr size_t kRows = 8;  // limit of non-finite rows in the folder

/// Rows of data.eval, each its own micro-batch, with the generated ids.
io::Json row_list(const Run& run, const infer::EvalResult& result) {
  const data::Dataset& rows = *run.data.eval;
  io::Json list = io::Json::array();
  for (const infer::EvalRecord& record : result.records) {
    if (!record.bad || list.size() == kRows) continue;
    const infer::NonFinite& bad = *record.bad;
    const data::Sample sample = rows.get(record.index);
    io::Json row = {{"id", record.id},
                    {"index", record.index},
                    {"micro_batch", list.size()},
                    {"images", rows.image_paths(record.index)},
                    {"tokens", sample.input_ids.size()},
                    {"supervised_tokens", sample.supervised()},
                    {"first_bad_module", bad.module}};
    if (bad.place.position >= 0) {
      row["position"] = bad.place.position;
      row["token_id"] = bad.token;
      row["token"] = run.data.tokenizer->token_of(bad.token);
    }
    if (bad.place.image >= 0) row["image"] = bad.place.image;
    if (std::isfinite(record.loss)) row["answer_ids"] = bad.answer;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

EvalIncidents::EvalIncidents(Run& run, RunFiles& files, bool writes)
    : run_(run), files_(files), writes_(writes) {}

void EvalIncidents::report(const infer::EvalResult& result) {
  if (!writes_) return;
  ErrorInfo info = not_finite_rows(result, *run_.data.tokenizer, run_.state.compute).info();
  const int64_t step = run_.state.step;
  if (folder_.empty()) {
    const io::Json json = {
        {"version", 1},
        {"rows_of", "data.eval"},
        {"step", step},
        {"reason", info.what},
        {"action", "none"},
        {"precision", compute_name(run_.state.compute)},
        {"loss", nullptr},
        {"loss_scale", 1},
        {"generator", {{"seed", run_.recipe.train.seed}, {"epoch", 0}, {"step", step}}},
        {"identity", run_identity(run_, run_.model.base_digest)},
        {"rows_evaluated", result.samples},
        {"rows_not_finite", result.not_finite},
        {"culprit", info.where},
        {"samples", row_list(run_, result)}};
    folder_ = write_incident_folder(run_, "eval-step-" + std::to_string(step), json);
  }
  info.what = "the evaluation after step " + std::to_string(step) +
              " is not finite and is not compared with others: " + info.where;
  info.next =
      "lft replay " + shell_word(folder_) + " names the operation and its cause; " + info.next;
  files_.warn("eval_not_finite", info, step);
}

}  // namespace lft::train
