#include "src/train/step/bad_rows.h"

#include <cmath>

#include "src/infer/non_finite.h"
#include "src/train/explain/non_finite_pass.h"

namespace lft::train {
namespace {

class RowHunter {
 public:
  RowHunter(family::Model& model, const data::StepSamples& samples, const RowPasses& passes)
      : model_(model), samples_(samples), passes_(passes) {}

  void look_at(BadRow row, BadRows* bad) const {
    const data::Sample& sample = samples_.micro[row.micro_batch][row.row];
    const PassReport report = run(sample, row.micro_batch);
    ++bad->looked_at;
    if (report.finite()) return;
    row.id = sample.id;
    if (report.output) {
      place(*report.output, sample, &row);
    } else {
      row.position = first_bad_token(sample, row.micro_batch);
    }
    bad->rows.push_back(std::move(row));
  }

 private:
  PassReport run(const data::Sample& sample, size_t micro_batch) const {
    objective::ForwardContext context = passes_.context;
    if (context.dropout) context.dropout->micro_batch = micro_batch;
    const auto loss = [&] {
      return objective::forward_loss(context, model_, samples_.make({sample}));
    };
    return watch_pass({.loss = loss,
                       .parameters = passes_.parameters,
                       .loss_scale = passes_.loss_scale,
                       .ops = false});
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
      (run(sample, micro_batch).finite() ? good : bad) = middle;
    }
    return positions[bad - 1];
  }

  family::Model& model_;
  const data::StepSamples& samples_;
  const RowPasses& passes_;
};

std::string row_text(const BadRow& row) {
  if (row.position >= 0) return row.id + ", position " + std::to_string(row.position);
  return row.image >= 0 ? row.id + ", image " + std::to_string(row.image) : row.id;
}

}  // namespace

BadRows find_bad_rows(family::Model& model, const data::StepSamples& samples,
                      const std::vector<size_t>& micro_batches, const RowPasses& passes) {
  BadRows bad;
  const RowHunter hunter(model, samples, passes);
  for (const size_t micro : micro_batches) {
    for (size_t row = 0; row < samples.micro[micro].size(); ++row) {
      if (samples.micro[micro][row].supervised() > 0)
        hunter.look_at({.micro_batch = micro, .row = row}, &bad);
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
