#include "src/train/step/bad_rows.h"

#include <cmath>

#include "models/objective/objective.h"
#include "src/infer/non_finite.h"
#include "src/train/explain/non_finite_pass.h"
#include "src/train/step/global_batch.h"
#include "src/train/step/parts.h"

namespace lft::train {
namespace {

class RowHunter {
 public:
  RowHunter(family::Model& model, const data::StepSamples& samples, const RowPasses& passes)
      : model_(model), samples_(samples), passes_(passes) {}

  /// `rows`: a row, or both sides of a pair, of which `row` is the first.
  void look_at(const std::vector<data::Sample>& rows, BadRow row, BadRows* bad) {
    const objective::Objective& objective = *passes_.context.objective;
    const PassReport report = run(rows, row.micro_batch, objective);
    ++bad->looked_at;
    if (report.finite()) return;
    row.id = rows.front().id;
    const bool loss = !std::isfinite(report.loss);
    // Gradients that overflow at this loss scale are not the cause of a loss that is not finite.
    if (loss && !of_loss_) bad->rows.clear();
    if (of_loss_ && !loss) return;
    of_loss_ = loss;
    if (rows.size() > 1) {
      find_side(rows, &row);
    } else if (report.output) {
      place(*report.output, rows.front(), &row);
    } else if (objective.sums_tokens()) {
      row.position = first_bad_token(rows.front(), row.micro_batch);
    }
    bad->rows.push_back(std::move(row));
  }

 private:
  PassReport run(const std::vector<data::Sample>& rows, size_t micro_batch,
                 const objective::Objective& objective) const {
    objective::ForwardContext context = passes_.context;
    context.objective = &objective;
    if (context.dropout) context.dropout->micro_batch = micro_batch;
    const auto loss = [&] { return objective::forward_loss(context, model_, samples_.make(rows)); };
    return watch_pass({.loss = loss,
                       .parameters = passes_.parameters,
                       .loss_scale = passes_.loss_scale,
                       .ops = false});
  }

  /// The side of a pair that is not finite by itself. Neither: only the loss of both is not.
  void find_side(const std::vector<data::Sample>& sides, BadRow* row) const {
    for (size_t i = 0; i < sides.size(); ++i) {
      if (sides[i].supervised() == 0) continue;
      const PassReport report = run({sides[i]}, row->micro_batch, objective::supervised_nll());
      if (!report.output) continue;
      row->id = sides[i].id;
      row->row += i;
      return place(*report.output, sides[i], row);
    }
  }

  static void place(const BadOutput& output, const data::Sample& sample, BadRow* row) {
    row->module = output.module;
    const infer::RowPlace place =
        infer::place_in_row(output.module, output.shape, output.index, sample);
    row->position = place.position;
    row->image = place.image;
  }

  /// The last of the shortest prefix of supervised tokens that is not finite.
  int64_t first_bad_token(data::Sample sample, size_t micro_batch) const {
    const std::vector<int64_t> positions = infer::supervised_positions(sample);
    const std::vector<int64_t> labels = sample.labels;
    size_t good = 0, bad = positions.size();
    while (bad - good > 1) {
      const size_t middle = good + (bad - good) / 2;
      sample.labels = labels;
      for (size_t i = middle; i < positions.size(); ++i)
        sample.labels[static_cast<size_t>(positions[i])] = -100;
      (run({sample}, micro_batch, objective::supervised_nll()).finite() ? good : bad) = middle;
    }
    return positions[bad - 1];
  }

  family::Model& model_;
  const data::StepSamples& samples_;
  const RowPasses& passes_;
  bool of_loss_ = false;  // the rows so far have losses that are not finite
};

std::string row_text(const BadRow& row) {
  if (row.position >= 0) return row.id + ", position " + std::to_string(row.position);
  return row.image >= 0 ? row.id + ", image " + std::to_string(row.image) : row.id;
}

}  // namespace

BadRows find_bad_rows(family::Model& model, const data::StepSamples& samples,
                      const std::vector<size_t>& micro_batches, const RowPasses& passes) {
  BadRows bad;
  RowHunter hunter(model, samples, passes);
  const int64_t together = passes.context.objective->rows_together();
  for (const size_t micro : micro_batches) {
    const std::vector<data::Sample>& all = samples.micro[micro];
    size_t row = 0;
    for (const std::vector<data::Sample>& rows : parts_of(all, std::ssize(all), together)) {
      if (supervised_tokens(rows) > 0)
        hunter.look_at(rows, {.micro_batch = micro, .row = row}, &bad);
      row += rows.size();
    }
  }
  return bad;
}

bool names_a_row(const BadRows& bad) {
  return !bad.rows.empty() && (bad.rows.size() < bad.looked_at || bad.looked_at == 1);
}

std::string bad_rows_text(const BadRows& bad) {
  if (bad.rows.empty())
    return "no row by itself: what is not finite is their sum, or came from outside the batch";
  const std::string first = row_text(bad.rows.front());
  if (bad.rows.size() == 1) return first;
  const std::string count =
      std::to_string(bad.rows.size()) + " of the " + std::to_string(bad.looked_at) + " rows";
  return names_a_row(bad) ? first + ", the first of " + count
                          : first + ", the first of all " + std::to_string(bad.looked_at) +
                                " rows: no sample is at fault, but the weights or the settings";
}

}  // namespace lft::train
