#include "src/train/step/global_batch.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "src/io/json.h"

namespace lft::data {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, ids, labels)
}  // namespace lft::data

namespace lft::train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GlobalBatch, ids, rows, skipped, supervised, tokens,
                                   supervised_of, has_image, answers, signal)

namespace {

template <class T>
void append_all(std::vector<T>& all, std::vector<T> more) {
  std::ranges::move(more, std::back_inserter(all));
}

/// The results of a process's passes, as sent to the others.
struct PassSummary {
  std::vector<uint64_t> losses;  // their bits
  std::vector<std::vector<uint64_t>> sums;
  std::vector<int64_t> routed;
  bool reached = false, out_of_memory = false;
  std::vector<bool> present;  // gradients, by slot
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PassSummary, losses, sums, routed, reached, out_of_memory,
                                   present)

PassSummary summary_of(const Passes& passes, bool failed, const Optimizer& optimizer) {
  PassSummary report;
  report.reached = passes.reached;
  report.routed = passes.routed;
  report.out_of_memory = failed;
  if (failed) return report;
  for (const at::Tensor& loss : passes.losses)
    report.losses.push_back(std::bit_cast<uint64_t>(loss.item<double>()));
  for (const at::Tensor& sums : passes.sums) {
    std::vector<uint64_t>& bits = report.sums.emplace_back();
    for (int64_t i = 0; i < sums.numel(); ++i)
      bits.push_back(std::bit_cast<uint64_t>(sums[i].item<double>()));
  }
  for (size_t i = 0; i < optimizer.slots().size(); ++i)
    report.present.push_back(optimizer.has_gradient(i));
  return report;
}

void add_to(std::vector<int64_t>& sums, size_t at, int64_t count) {
  sums.resize(std::max(sums.size(), at + 1));
  sums[at] += count;
}

at::Tensor tensor_of(const std::vector<uint64_t>& bits) {
  at::Tensor sums = at::empty({std::ssize(bits)}, at::kDouble);
  std::ranges::transform(bits, sums.mutable_data_ptr<double>(),
                         [](uint64_t each) { return std::bit_cast<double>(each); });
  return sums;
}

}  // namespace

int64_t supervised_tokens(const std::vector<data::Sample>& samples) {
  int64_t count = 0;
  for (const data::Sample& sample : samples) count += sample.supervised();
  return count;
}

int64_t GlobalBatch::most_rows() const { return rows.empty() ? 0 : std::ranges::max(rows); }

objective::GlobalBatchCounts GlobalBatch::counts() const {
  return {.supervised = supervised, .rows = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
}

GlobalBatch global_batch_of(const data::StepSamples& samples, bool answers) {
  GlobalBatch whole;
  whole.skipped = samples.skipped;
  for (const std::vector<data::Sample>& micro : samples.micro) {
    whole.rows.push_back(std::ssize(micro));
    whole.supervised += supervised_tokens(micro);
    for (const data::Sample& sample : micro) {
      whole.ids.push_back(sample.id);
      whole.tokens += std::ssize(sample.input_ids);
      add_to(whole.supervised_of, static_cast<size_t>(sample.source), sample.supervised());
      whole.has_image |= !sample.images.empty();
      if (answers)
        whole.answers.push_back(data::answer_of(sample, samples.layout->encode.config.image_token));
    }
  }
  return whole;
}

GlobalBatch gather_global_batch(dist::Ranks& ranks, const data::StepSamples& samples, int signal,
                                bool answers) {
  GlobalBatch own = global_batch_of(samples, answers), whole;
  if (ranks.alone()) return own;
  own.signal = signal;
  const std::vector<std::string> texts = ranks.exchange(io::json_text(io::Json(own)));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    auto part = io::Json::parse(texts[rank]).get<GlobalBatch>();
    if (static_cast<int64_t>(rank) == ranks.rank()) whole.first = std::ssize(whole.rows);
    append_all(whole.ids, std::move(part.ids));
    append_all(whole.rows, std::move(part.rows));
    append_all(whole.skipped, std::move(part.skipped));
    whole.supervised += part.supervised;
    whole.tokens += part.tokens;
    for (size_t i = 0; i < part.supervised_of.size(); ++i)
      add_to(whole.supervised_of, i, part.supervised_of[i]);
    whole.has_image |= part.has_image;
    append_all(whole.answers, std::move(part.answers));
    if (whole.signal == 0) whole.signal = part.signal;
  }
  return whole;
}

void add_counts(std::vector<int64_t>& sums, const std::vector<int64_t>& more) {
  for (size_t i = 0; i < more.size(); ++i) add_to(sums, i, more[i]);
}

at::Tensor total_loss(const Passes& passes) {
  at::Tensor total;
  for (const at::Tensor& loss : passes.losses) total = total.defined() ? total + loss : loss;
  return passes.reached ? total : at::Tensor();
}

at::Tensor total_sums(const Passes& passes) {
  at::Tensor total;
  for (const at::Tensor& sums : passes.sums) total = total.defined() ? total + sums : sums;
  return total;
}

at::Tensor share_passes(dist::Ranks& ranks, Passes& passes, const std::exception_ptr& failed,
                        Optimizer& optimizer) {
  const PassSummary own = summary_of(passes, failed != nullptr, optimizer);
  bool reached = false, out_of_memory = false;
  double total = 0;
  bool first = true;
  std::vector<bool> present(optimizer.slots().size());
  passes.sums.clear();
  passes.routed.clear();
  for (const std::string& text : ranks.exchange(io::Json(own).dump())) {
    const auto report = io::Json::parse(text).get<PassSummary>();
    std::ranges::transform(report.sums, std::back_inserter(passes.sums), tensor_of);
    add_counts(passes.routed, report.routed);
    reached |= report.reached;
    out_of_memory |= report.out_of_memory;
    for (const uint64_t bits : report.losses) {
      total = first ? std::bit_cast<double>(bits) : total + std::bit_cast<double>(bits);
      first = false;
    }
    for (size_t i = 0; i < report.present.size(); ++i) present[i] = present[i] || report.present[i];
  }
  if (failed) std::rethrow_exception(failed);
  if (out_of_memory) throw OutOfMemoryElsewhere();
  if (!reached) return {};
  for (size_t i = 0; i < present.size(); ++i) {
    if (present[i] && !optimizer.has_gradient(i)) optimizer.gradient_written(i);
  }
  const at::Tensor flat = optimizer.flat_gradients();
  ranks.sum(flat);
  return at::scalar_tensor(total, flat.options().dtype(at::kDouble));
}

}  // namespace lft::train
