#include "src/report/metrics.h"

#include <cassert>

#include "src/io/files.h"

namespace lft::report {
namespace {

using Line = nlohmann::ordered_json;  // keeps the order of the keys

std::string line_text(const Line& line) {
  // Doubles have the shortest form that reads back to the same bits; non-finite values are null.
  return io::json_text(line) + "\n";
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, uint64_t keep_bytes)
    : file_(io::FileHandle::open_to_append(path)) {
  offset_ = keep_bytes;
  if (file_.size() < keep_bytes) offset_ = io::read_file(path).rfind('\n') + 1;  // npos + 1 is 0
  file_.truncate(offset_);
}

void MetricsFile::append(const std::string& line) {
  file_.write(line.data(), line.size());
  offset_ += line.size();
}

void MetricsFile::step(const StepMetrics& m) {
  Line line = {{"step", m.step},
               {"loss", m.loss},
               {"lr", m.lr},
               {"grad_norm", m.grad_norm},
               {"loss_scale", m.loss_scale},
               {"precision", m.precision},
               {"supervised_tokens", m.supervised_tokens},
               {"tokens", m.tokens},
               {"tokens_per_s", m.tokens_per_s},
               {"step_s", m.step_s},
               {"eval_s", m.eval_s},
               {"checkpoint_s", m.checkpoint_s},
               {"ids_hash", m.ids_hash},
               {"run_hash", m.run_hash}};
  for (const auto& [group, rate] : m.lrs) line["lrs"][group] = rate;
  for (const auto& [name, value] : m.figures) line[name] = value;
  for (const auto& [source, loss] : m.losses) line["losses"][source] = loss;
  for (const auto& [source, tokens] : m.loss_tokens) line["loss_tokens"][source] = tokens;
  append(line_text(line));
}

void MetricsFile::event(const std::string& name, int64_t step, const io::Json& fields) {
  assert(!fields.contains("loss"));
  Line line = {{"event", name}, {"step", step}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  append(line_text(line));
}

}  // namespace lft::report
