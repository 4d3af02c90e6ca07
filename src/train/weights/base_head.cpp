// Tokens with similar use have similar embeddings and similar rows of the
// head: the cosines of all pairs of tokens in the two tables correlate.
// Permuted rows remove this. The expected correlation follows from each table
// alone: its cosines over the even and over the odd channels correlate by its
// own structure, and two tables of one model by about the mean of theirs (a
// quarter of it in the quickstart base). An untrained table has none.
#include "src/train/weights/base_head.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/train/weights/base_fit.h"

namespace lft::train {
namespace {

constexpr int64_t kTokens = 1024;
constexpr int kShuffles = 16;
constexpr int64_t kMostShift = 4;               // a few tokens too many at the front
constexpr double kBetter = 1.25, kClearly = 8;  // times the unshifted agreement, plus chance
constexpr char kTokenTable[] = "language_model.model.embed_tokens.weight";
constexpr char kLmHead[] = "language_model.lm_head.weight";

/// [tokens, width] of evenly spaced rows, or of those `shift` rows after them.
at::Tensor table_rows(const hf::ModelDir& dir, const std::string& name, int64_t tokens,
                      int64_t shift = 0) {
  const hf::ModelDir::Place& place = dir.tensors.at(name);
  const io::TensorInfo& info = dir.info(place);
  at::Tensor rows = at::empty({tokens, info.shape[1]}, hf::to_scalar_type(info.dtype));
  const uint64_t bytes = info.bytes / static_cast<uint64_t>(info.shape[0]);
  const int64_t all = info.shape[0];
  const auto row_at = [&](int64_t i) { return (i * all / tokens + shift + all) % all; };
  for (int64_t i = 0; i < tokens; ++i)
    dir.files[place.file].read_range(
        info, static_cast<uint64_t>(row_at(i)) * bytes, bytes,
        static_cast<char*>(rows.data_ptr()) + static_cast<uint64_t>(i) * bytes);
  return at::nan_to_num(rows.to(at::kFloat), 0, 0, 0);
}

/// Centred cosines of all pairs; [tokens, tokens] minus the mean, 0 on the diagonal.
at::Tensor cosines(const at::Tensor& rows) {
  const at::Tensor centred = rows - rows.mean(0);
  const at::Tensor unit = centred / centred.norm(2, 1, /*keepdim=*/true).clamp_min(1e-20);
  at::Tensor all = at::matmul(unit, unit.t());
  all.fill_diagonal_(0);
  const double pairs = static_cast<double>(rows.size(0)) * static_cast<double>(rows.size(0) - 1);
  all -= all.sum().item<double>() / pairs;
  all.fill_diagonal_(0);
  return all;
}

double agreement_of(const at::Tensor& a, const at::Tensor& b) {
  return (at::dot(a.view(-1), b.view(-1)) / (a.norm() * b.norm())).item<double>();
}

double own_structure(const at::Tensor& rows) {
  return agreement_of(cosines(rows.slice(1, 0, rows.size(1), 2)),
                      cosines(rows.slice(1, 1, rows.size(1), 2)));
}

/// The number of rows by which the head is shifted if the agreement is then clearly better; else 0.
int64_t better_shift(const hf::ModelDir& dir, const at::Tensor& of_embedding, double found,
                     double chance) {
  int64_t best = 0;
  double most = std::max(found, 0.0) * kBetter + kClearly * chance;
  for (int64_t shift = -kMostShift; shift <= kMostShift; ++shift) {
    if (shift == 0) continue;
    const double agreement =
        agreement_of(of_embedding, cosines(table_rows(dir, kLmHead, of_embedding.size(0), shift)));
    if (agreement <= most) continue;
    most = agreement;
    best = shift;
  }
  return best;
}

/// The deviation of the agreement with permuted rows.
double chance_of(const at::Tensor& a, const at::Tensor& rows) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  double squares = 0;
  for (int i = 0; i < kShuffles; ++i) {
    const at::Tensor order = at::randperm(a.size(0), generator, at::TensorOptions(at::kLong));
    const double by_chance = agreement_of(a, cosines(rows.index_select(0, order)));
    squares += by_chance * by_chance;
  }
  return std::sqrt(squares / kShuffles);
}

}  // namespace

HeadFit head_fit(const hf::ModelDir& dir) {
  HeadFit result;
  if (dir.config.text.tie_embeddings) {
    result.not_judged = "the LM head's rows (the head is the embedding)";
    return result;
  }
  const int64_t tokens = std::min(kTokens, dir.config.text.vocab);
  const at::Tensor embedding = table_rows(dir, kTokenTable, tokens);
  const at::Tensor head = table_rows(dir, kLmHead, tokens);
  const at::Tensor a = cosines(embedding);
  const double chance = chance_of(a, head), found = agreement_of(a, cosines(head));
  const double of_embedding = own_structure(embedding), of_head = own_structure(head);
  const double expected = std::sqrt(std::max(of_embedding, 0.0) * std::max(of_head, 0.0));
  if (!(of_embedding > 8 * chance && of_head > 8 * chance && expected > 12 * chance)) {
    result.not_judged = "the LM head's rows (the rows of the two tables have too little in common)";
    return result;
  }
  const int64_t shift = better_shift(dir, a, found, chance);
  if (shift == 0 && (found > 4 * chance || found > 0.1 * expected)) return result;
  result.suspicions.push_back(
      {.weight = 2800,
       .name = kLmHead,
       .what = "its rows do not belong to the tokens of the embedding's rows",
       .found = "the two agree on which tokens are alike by a correlation of " +
                format_number(found, "%.4f") +
                (shift == 0 ? ""
                            : ", clearly better " + std::to_string(std::abs(shift)) + " rows " +
                                  (shift > 0 ? "after" : "before")),
       .neighbours = "chance gives " + format_number(chance, "%.4f") + ", up to " +
                     format_number(expected, "%.2f") + " is there to agree on",
       .next = kCompare});
  return result;
}

}  // namespace lft::train
