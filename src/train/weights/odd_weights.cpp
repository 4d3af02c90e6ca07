#include "src/train/weights/odd_weights.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/weights.h"

namespace lft::train {
namespace {

constexpr size_t kWarned = 3;
// 16 rows of 4096: half a millisecond, while reading and converting all takes twenty or more.
constexpr int64_t kSampledElements = 1 << 16;

bool is_norm(const std::string& name) {
  return name.ends_with(".weight") && (name.find("norm") != std::string::npos);
}

bool is_table(const std::string& name) {
  return name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
}

/// The tensors of the same kind in other layers.
std::vector<const TensorStats*> kin_of(const StatsByName& stats, const std::string& name) {
  const TensorKind self = tensor_kind(name);
  std::vector<const TensorStats*> kin;
  if (self.layer < 0) return kin;
  const size_t star = self.kind.find('*');
  for (auto at = stats.lower_bound(self.kind.substr(0, star)); at != stats.end(); ++at) {
    if (!at->first.starts_with(self.kind.substr(0, star))) break;
    if (at->first != name && tensor_kind(at->first).kind == self.kind) kin.push_back(&at->second);
  }
  return kin;
}

Suspicion non_finite(const std::string& name, const TensorStats& one) {
  return {.weight = 1e9,
          .name = name,
          .what = "values that are not finite",
          .found = std::to_string(one.non_finite) + " of " +
                   std::to_string(one.rows_seen * one.columns) + ", the first at flat index " +
                   std::to_string(one.first_non_finite),
          .neighbours = "no tensor of a sound checkpoint has one",
          .next = kCompare};
}

/// A zero bias is an initial bias, and a norm of ones an initial norm; a matrix of one number is no
/// layer unless it is so in all layers, as in some initialisations of matrices that write into the
/// residual stream.
void flat_tensor(const StatsByName& stats, const std::string& name, const TensorStats& one,
                 std::vector<Suspicion>& found) {
  const std::vector<const TensorStats*> kin = kin_of(stats, name);
  const auto flat_kin =
      std::count_if(kin.begin(), kin.end(), [](const TensorStats* other) { return other->flat(); });
  const bool dead_norm = is_norm(name) && one.highest == 0;
  const bool lone_matrix = one.rows > 1 && (kin.empty() || 2 * flat_kin < std::ssize(kin));
  const bool lone_bias = one.rows == 1 && kin.size() >= 3 && flat_kin == 0;
  if (!dead_norm && !lone_matrix && !lone_bias) return;
  found.push_back({.weight = dead_norm || lone_matrix ? 1e8 : 10,
                   .name = name,
                   .what = "contains only one number",
                   .found = "every value is " + format_number(one.highest),
                   .neighbours = kin.empty() ? "a trained tensor varies"
                                             : "so are " + std::to_string(flat_kin) + " of the " +
                                                   std::to_string(kin.size()) + " other layers",
                   .next = kCompare});
}

int64_t longest_run(const std::vector<int64_t>& numbers) {
  int64_t longest = 0, run = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    run = i > 0 && numbers[i] == numbers[i - 1] + 1 ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return longest;
}

/// A token table may have unused rows: padding anywhere, and any number of reserved ones at its
/// end.
bool unused_tokens(const TensorStats& one) {
  std::vector<int64_t> inner = one.flat_rows;
  int64_t end = one.rows;
  while (!inner.empty() && inner.back() == end - 1) {
    inner.pop_back();
    --end;
  }
  const int64_t allowed = std::max<int64_t>(3, one.rows / 50);
  return end >= one.rows / 2 && std::ssize(inner) <= allowed && longest_run(inner) <= 16;
}

void flat_lines(const StatsByName& stats, const std::string& name, const TensorStats& one,
                std::vector<Suspicion>& found) {
  for (const bool rows : {true, false}) {
    const std::vector<int64_t>& flat = rows ? one.flat_rows : one.flat_columns;
    if (flat.empty() || (rows && is_table(name) && unused_tokens(one))) continue;
    // In a pruned checkpoint, other layers have such lines, too.
    size_t most = 0;
    const std::vector<const TensorStats*> kin = kin_of(stats, name);
    for (const TensorStats* other : kin) {
      if (!other->flat())
        most = std::max(most, (rows ? other->flat_rows : other->flat_columns).size());
    }
    if (flat.size() <= 8 * most) continue;
    const int64_t all = rows ? one.rows_seen : one.columns;
    found.push_back(
        {.weight = 1e6 * (1 + static_cast<double>(flat.size()) / static_cast<double>(all)),
         .name = name,
         .what =
             rows ? "rows that contain only one number" : "columns that contain only one number",
         .found = std::to_string(flat.size()) + " of " + std::to_string(all) + ", the first is " +
                  std::to_string(flat.front()),
         .neighbours = kin.empty() ? "a trained tensor has none"
                                   : "at most " + std::to_string(most) + " in the other layers",
         .next = kCompare});
  }
}

/// A matrix that another layer has, too, value by value as far as sums can show.
void copies(const StatsByName& stats, std::vector<Suspicion>& found) {
  std::map<std::tuple<std::string, double, double, double>, std::string> first;
  for (const auto& [name, one] : stats) {
    if (one.rows == 1 || one.flat() || tensor_kind(name).layer < 0) continue;
    const auto [at, fresh] =
        first.try_emplace({tensor_kind(name).kind, one.rms, one.fourth, one.highest}, name);
    if (fresh) continue;
    found.push_back({.weight = 100,
                     .name = name,
                     .what = "the same numbers as " + at->second,
                     .found = "equal sums of squares and of fourth powers",
                     .neighbours = "other layers differ in every matrix",
                     .next = kCompare});
  }
}

/// Whether the first names the second, or a layer or tower that contains it.
bool covers(const Suspicion& first, const std::string& name) {
  const size_t begin = first.name.find('('), end = first.name.find("*)");
  const std::string covered =
      end == std::string::npos ? first.name : first.name.substr(begin + 1, end - begin - 1);
  return name == covered || name.starts_with(covered.ends_with('.') ? covered : covered + ".");
}

bool is_named(const std::vector<Suspicion>& all, const std::string& name) {
  const std::string both = " and ";
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + both.size()) {
    end = name.find(both, begin);
    const std::string part = name.substr(begin, end == std::string::npos ? end : end - begin);
    if (std::any_of(all.begin(), all.end(),
                    [&](const Suspicion& named) { return covers(named, part); }))
      return true;
  }
  return false;
}

/// Reads the named tensors and those of their kinds completely if only a sample was read. Returns
/// whether there was one.
bool read_whole(const hf::ModelDir& dir, const std::vector<Suspicion>& named, StatsByName& stats) {
  std::set<std::string> kinds;
  for (const auto& [name, one] : stats)
    if (is_named(named, name)) kinds.insert(tensor_kind(name).kind);
  bool read = false;
  for (auto& [name, one] : stats) {
    if (one.whole() || !kinds.contains(tensor_kind(name).kind)) continue;
    one = tensor_stats(dir, name, 0);
    read = true;
  }
  return read;
}

/// Such a run starts from a random projector.
bool trains_projector(const recipe::Recipe& recipe) {
  return std::ranges::any_of(
      recipe.full, [](const std::string& part) { return part == "projector" || part == "all"; });
}

}  // namespace

const char* const kLooksRandom = "looks random, as an initialisation leaves it";
const char* const kCompare =
    "compare the sha256 of the file with the published one's: where they are equal, the model is "
    "made so and needs no change; where not, fetch the file again, or repeat the conversion";

std::string suspicion_line(const Suspicion& suspicion) {
  return escape_text(suspicion.name) + ": " + suspicion.what + ": " + suspicion.found + " (" +
         suspicion.neighbours + "); " + suspicion.next;
}

void sort_suspicions(std::vector<Suspicion>& suspicions) {
  std::stable_sort(suspicions.begin(), suspicions.end(),
                   [](const Suspicion& a, const Suspicion& b) {
                     return a.weight != b.weight ? a.weight > b.weight : a.name < b.name;
                   });
}

void add_unless_named(std::vector<Suspicion>& all, const std::vector<Suspicion>& more) {
  const std::vector<Suspicion> before = all;
  for (const Suspicion& one : more) {
    if (!is_named(before, one.name)) all.push_back(one);
  }
}

std::vector<Suspicion> odd_values(const StatsByName& stats) {
  std::vector<Suspicion> found;
  for (const auto& [name, one] : stats) {
    if (one.non_finite > 0) {
      found.push_back(non_finite(name, one));
    } else if (one.flat()) {
      flat_tensor(stats, name, one, found);
    } else if (one.rows > 1) {
      flat_lines(stats, name, one, found);
    }
  }
  copies(stats, found);
  return found;
}

std::vector<Suspicion> odd_weights(const family::ModelConfig& config, const StatsByName& stats) {
  std::vector<Suspicion> found = odd_values(stats);
  for (std::vector<Suspicion> more : {odd_scales(stats), as_initialised(config, stats)})
    found.insert(found.end(), more.begin(), more.end());
  sort_suspicions(found);
  std::vector<Suspicion> told;
  for (const Suspicion& one : found) add_unless_named(told, {one});
  return told;
}

std::vector<Suspicion> sampled_suspicions(const hf::ModelDir& dir) {
  StatsByName stats = used_tensor_stats(dir, kSampledElements);
  std::vector<Suspicion> found = odd_weights(dir.config, stats);
  while (read_whole(dir, found, stats)) found = odd_weights(dir.config, stats);
  return found;
}

std::vector<std::string> base_warnings(const RunInputs& inputs) {
  if (inputs.recipe.model.init == recipe::ModelInit::kRandom) return {};
  const hf::ModelDir& dir = inputs.files.dir;
  std::vector<Suspicion> found = sampled_suspicions(dir);
  if (trains_projector(inputs.recipe)) {
    const family::ProjectorShape projector = dir.config.family->layout(dir.config).projector;
    for (const family::ProjectorShape::Layer& layer : projector.layers)
      std::erase_if(found, [&](const Suspicion& one) {
        return one.what == kLooksRandom && one.name == layer.weight();
      });
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kWarned, found.size()); ++i) {
    lines.push_back("the base looks odd: " + found[i].name + ": " + found[i].what + ": " +
                    found[i].found + " (" + found[i].neighbours + "); lft debug base " +
                    shell_word(dir.path) + " says more");
  }
  if (found.size() > kWarned) {
    lines.push_back("the base looks odd in " + std::to_string(found.size() - kWarned) +
                    " more places; lft debug base " + shell_word(dir.path) + " names them");
  }
  return lines;
}

}  // namespace lft::train
