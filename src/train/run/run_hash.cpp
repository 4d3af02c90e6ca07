#include "src/train/run/run_hash.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "src/base/hash.h"
#include "src/io/json.h"
#include "src/train/step/step.h"

namespace lft::train {
namespace {

std::string short_hash(const std::string& text) { return sha256(text).substr(0, 16); }

}  // namespace

std::string first_run_hash() { return std::string(16, '0'); }

StepHashes fold_step(const std::string& run_hash, const data::StepSamples& samples, double loss) {
  StepHashes hashes;
  hashes.ids = short_hash(
      io::Json(sample_ids(samples)).dump(-1, ' ', false, io::Json::error_handler_t::replace));
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

}  // namespace lft::train
