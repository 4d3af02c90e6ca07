#include "src/debug/repeat/verify_resume_compare.h"

#include <ATen/Functions.h>

#include "src/base/hash.h"
#include "src/checkpoint/checkpoint.h"
#include "src/debug/repeat/diff.h"
#include "src/debug/repeat/diff_lines.h"
#include "src/debug/repeat/verify_resume.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

std::vector<io::Json> metric_lines(const std::string& dir) {
  const std::string path = dir + "/metrics.jsonl", text = io::read_file(path);
  std::vector<io::Json> lines;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    lines.push_back(io::parse_json(std::string_view(text).substr(begin, end - begin), path));
  }
  return lines;
}

/// Lines of steps, and events that replace one, without timings.
std::string certified_step(const std::string& dir) {
  std::string text;
  for (io::Json& line : metric_lines(dir)) {
    if (!line.contains("run_hash")) continue;
    line.erase("step_s");
    line.erase("tokens_per_s");
    line.erase("eval_s");
    line.erase("checkpoint_s");
    line.erase("incident");  // a path
    text += line.dump() + "\n";
  }
  return text;
}

Compared compare_texts(const std::string& what, const std::string& whole, const std::string& other,
                       const std::string& difference) {
  return {what, sha256(whole), sha256(other), whole == other ? "" : difference};
}

Compared compare_certified_steps(const std::string& whole_dir, const std::string& other_dir) {
  const std::string whole = certified_step(whole_dir), other = certified_step(other_dir);
  if (whole == other) return compare_texts("step lines", whole, other, "");
  const RunDiff diff = diff_runs(whole_dir, other_dir);
  return compare_texts(
      "step lines", whole, other,
      diff.step > 0 ? parting_text(diff) : "a line of a step is missing or has other fields");
}

std::string number_text(double value) { return io::Json(value).dump(); }

/// The first tensor that differs, by name.
std::string tensor_difference(const std::map<std::string, at::Tensor>& whole,
                              const std::map<std::string, at::Tensor>& other) {
  for (const auto& [name, tensor] : whole) {
    const auto found = other.find(name);
    if (found == other.end()) return name + " is missing";
    if (tensor.sizes() != found->second.sizes() ||
        tensor.scalar_type() != found->second.scalar_type())
      return name + " has another shape";
    if (at::equal(tensor, found->second)) continue;
    const at::Tensor gap = (tensor.to(at::kDouble) - found->second.to(at::kDouble)).abs();
    return name + ": " + std::to_string(at::count_nonzero(gap).item<int64_t>()) + " of " +
           std::to_string(gap.numel()) + " values differ, by up to " +
           number_text(gap.max().item<double>());
  }
  return other.size() > whole.size() ? "tensors too many"
                                     : "the same values in other bits";  // -0 and 0
}

Compared compare_tensor_files(const std::string& name, const std::string& whole_dir,
                              const std::string& other_dir,
                              const std::map<std::string, at::Tensor>& whole,
                              const std::map<std::string, at::Tensor>& other) {
  Compared compared{
      name, sha256_file(whole_dir + "/" + name), sha256_file(other_dir + "/" + name), {}};
  if (compared.whole != compared.other) compared.difference = tensor_difference(whole, other);
  return compared;
}

/// Without the size of metrics.jsonl: the resumed run's has an additional line.
Compared compare_states(io::Json whole, io::Json other) {
  std::string difference;
  for (io::Json* state : {&whole, &other}) state->erase("metrics_bytes");
  for (const auto& [key, value] : whole.items()) {
    if (difference.empty() && (!other.contains(key) || other[key] != value)) {
      difference = key + ": " + io::describe_json(value) + " and " +
                   (other.contains(key) ? io::describe_json(other[key]) : "nothing");
    }
  }
  return compare_texts("state.json", whole.dump(), other.dump(),
                       difference.empty() ? "it has more fields" : difference);
}

/// Every file of the adapter (or the full model) except the README, which contains the folder's
/// name.
void compare_products(const std::string& whole_dir, const std::string& other_dir,
                      std::vector<Compared>& list) {
  std::string product = "model";
  for (const char* other : {"adapter", "parts"})
    if (io::is_directory(whole_dir + "/" + other)) product = other;
  for (const std::string& file : io::list_dir(whole_dir + "/" + product)) {
    if (file == "README.md") continue;
    const std::string name = product + "/" + file;
    Compared compared{name, sha256_file(whole_dir + "/" + name), {}, {}};
    if (io::path_exists(other_dir + "/" + name))
      compared.other = sha256_file(other_dir + "/" + name);
    if (compared.whole != compared.other)
      compared.difference = compared.other.empty() ? "it is missing" : "other bytes";
    list.push_back(compared);
  }
}

}  // namespace

std::vector<Compared> compare_parts(const std::string& whole_dir, const std::string& other_dir,
                                    int64_t step, const PartEnd& whole, const PartEnd& other) {
  const std::string name = "/checkpoints/step-" + std::to_string(step);
  const checkpoint::Checkpoint a = checkpoint::load_checkpoint(whole_dir + name),
                               b = checkpoint::load_checkpoint(other_dir + name);
  std::vector<Compared> list = {compare_certified_steps(whole_dir, other_dir),
                                compare_tensor_files("trainables.safetensors", whole_dir + name,
                                                     other_dir + name, a.trainables, b.trainables),
                                compare_tensor_files("optimizer.safetensors", whole_dir + name,
                                                     other_dir + name, a.moments, b.moments),
                                compare_states(a.state, b.state)};
  compare_products(whole_dir, other_dir, list);
  const std::string next_whole = io::Json(whole.next_ids).dump(),
                    next_other = io::Json(other.next_ids).dump();
  list.push_back(
      compare_texts("next sample ids", next_whole, next_other, next_whole + " and " + next_other));
  return list;
}

int64_t resumed_behind(const std::string& dir) {
  int64_t step = -1;
  for (const io::Json& line : metric_lines(dir)) {
    if (line.value("event", "") == "resume") step = line.value("step", int64_t{-1});
  }
  return step;
}

std::string last_run_hash(const std::string& dir) {
  std::string hash;
  for (const io::Json& line : metric_lines(dir)) hash = line.value("run_hash", hash);
  return hash;
}

}  // namespace lft::debug
