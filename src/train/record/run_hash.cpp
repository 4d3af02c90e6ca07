#include "src/train/record/run_hash.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "src/base/hash.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::train {
namespace {

std::string short_hash(const std::string& text) { return sha256(text).substr(0, 16); }

std::string text_of(const io::Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Updates the run's hash from line to line.
class Follower {
 public:
  /// Empty if the line is a valid next line of a run.
  std::string fault(const io::Json& line) {
    const auto step = line.is_object() ? line.find("step") : line.end();
    if (step == line.end() || !step->is_number_integer()) return "cannot be read";
    const std::string ids = text_of(line, "ids_hash"), hash = text_of(line, "run_hash");
    const bool is_step = !line.contains("event");
    if (is_step && (ids.empty() || hash.empty() || !line.contains("loss"))) return "lacks a field";
    if (hash.empty()) return "";  // an event between steps
    const auto number = step->get<int64_t>();
    const std::string before = hash_;
    const int64_t missing = last_ + 1;
    const bool next = number == missing || last_ == kUnknown;
    last_ = number;
    hash_ = hash;
    if (!next) return "step " + std::to_string(missing) + " is missing before it";
    if (!is_step || before.empty()) return "";  // a skipped step's loss is not recorded
    const io::Json& loss = line["loss"];
    const double value = loss.is_number() ? loss.get<double>() : NAN;
    return fold_hashes(before, ids, value) == hash
               ? ""
               : "step " + std::to_string(number) +
                     " has another loss or other samples than its "
                     "run_hash says";
  }
  /// After an unreadable line, the hash before the next one is unknown.
  void lose_line() {
    hash_.clear();
    last_ = kUnknown;
  }

 private:
  static constexpr int64_t kUnknown = -1;
  std::string hash_ = first_run_hash();
  int64_t last_ = 0;  // step
};

}  // namespace

std::string first_run_hash() { return std::string(16, '0'); }

StepHashes fold_step(const std::string& run_hash, const std::vector<std::string>& ids,
                     double loss) {
  StepHashes hashes;
  hashes.ids = short_hash(io::json_text(io::Json(ids)));
  hashes.run = fold_hashes(run_hash, hashes.ids, loss);
  return hashes;
}

std::string fold_hashes(const std::string& run_hash, const std::string& ids_hash, double loss) {
  return short_hash(run_hash + ids_hash + bits_text(loss));
}

std::string bits_text(double value) {
  char text[24];
  std::snprintf(
      text, sizeof text, "%016llx",
      static_cast<unsigned long long>(std::bit_cast<uint64_t>(std::isnan(value) ? NAN : value)));
  return text;
}

double bits_value(const std::string& text) {
  return std::bit_cast<double>(static_cast<uint64_t>(std::stoull(text, nullptr, 16)));
}

std::vector<std::string> metrics_faults(const std::string& path, uint64_t bytes) {
  std::vector<std::string> faults;
  if (!io::path_exists(path)) return faults;
  const std::string text = io::read_file(path).substr(0, bytes);
  Follower follower;
  for (size_t at = 0, number = 1; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const io::Json line = io::Json::parse(text.begin() + static_cast<std::ptrdiff_t>(at),
                                          text.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                                          /*allow_exceptions=*/false);
    const std::string fault = follower.fault(line);
    if (!fault.empty()) {
      if (!line.is_object()) follower.lose_line();
      faults.push_back("line " + std::to_string(number) + ": " + fault);
    }
    at = end + 1;
  }
  return faults;
}

}  // namespace lft::train
