#include <ATen/ATen.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "models/layers/call.h"
#include "src/base/errors.h"
#include "src/cli/commands.h"
#include "src/cli/merge_probe.h"
#include "src/hf/model_dir.h"

namespace lft::cli {
namespace {

struct Row {
  std::string path, type, input, output, dtype;
  int64_t parameters = 0;
};

std::string shapes(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    std::string shape;
    for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    text += (text.empty() ? "[" : " [") + shape + "]";
  }
  return text.empty() ? "-" : text;
}

/// "Linear" for "lft::LinearImpl".
std::string type_name(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t at = name.rfind("::"); at != std::string::npos) name = name.substr(at + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

/// One row a call, in the order of calls: a module before what it calls.
class CallTable : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module& module, const std::vector<at::Tensor>& inputs) override {
    if (!index_.try_emplace(path, rows.size()).second) return;
    rows.push_back({path, type_name(module), shapes(inputs), "-", "-", 0});
  }
  void after(const std::string& path, const torch::nn::Module& module, const std::vector<at::Tensor>& outputs) override {
    rows[index_.at(path)].output = shapes(outputs);
  }

  /// The rows of "<stem>0" once more for every index below `count`.
  void repeat(const std::string& stem, int64_t count) {
    const std::string first = stem + "0";
    std::vector<Row> all;
    for (auto row = rows.begin(); row != rows.end();) {
      const auto end = std::find_if(row, rows.end(), [&](const Row& other) { return !other.path.starts_with(first); });
      for (int64_t i = 0; row != end && i < count; ++i) {
        for (auto copied = row; copied != end; ++copied) {
          all.push_back(*copied);
          all.back().path = stem + std::to_string(i) + copied->path.substr(first.size());
        }
      }
      if (row == end)
        all.push_back(*row++);
      else
        row = end;
    }
    rows = std::move(all);
    index_.clear();
    for (size_t i = 0; i < rows.size(); ++i) index_[rows[i].path] = i;
  }

  /// A tensor counts for the innermost called module that holds it, so that the column adds up; what no output depends on has rows of its
  /// own.
  void count(const ModelDir& dir) {
    const std::vector<std::string> unused = llava_unused_modules(dir.config);
    for (const auto& [name, place] : dir.tensors) {
      const auto at = std::find_if(unused.begin(), unused.end(), [&](const std::string& module) { return name.starts_with(module + "."); });
      add(at == unused.end() ? owner_of(name) : row_of(*at, "(not used)"), dir.info(place));
    }
  }

  std::vector<Row> rows;

 private:
  Row& row_of(const std::string& path, const std::string& type) {
    const auto [at, fresh] = index_.try_emplace(path, rows.size());
    if (fresh) rows.push_back({path, type, "-", "-", "-", 0});
    return rows[at->second];
  }

  Row& owner_of(const std::string& tensor) {
    for (size_t dot = tensor.rfind('.'); dot != std::string::npos && dot > 0; dot = tensor.rfind('.', dot - 1)) {
      const auto at = index_.find(tensor.substr(0, dot));
      if (at != index_.end()) return rows[at->second];
    }
    return row_of(tensor, "(not run)");
  }

  static void add(Row& row, const TensorInfo& info) {
    const std::string dtype = dtype_name(info.dtype);
    row.parameters += info.numel();
    if (row.dtype == "-")
      row.dtype = dtype;
    else if (row.dtype.find(dtype) == std::string::npos)
      row.dtype += "," + dtype;
  }

  std::map<std::string, size_t> index_;
};

/// Runs one image and a few tokens through a model of zeros with a single decoder layer: all decoder layers have the same shapes, so the
/// summary of a 7B checkpoint needs seconds and no 14 GB. (LibTorch's meta device knows neither embedding nor layer norm.)
CallTable run_probe(const ModelDir& dir) {
  const at::NoGradGuard no_grad;
  LlavaConfig config = dir.config;
  config.text.layers = 1;
  Llava model(config, to_scalar_type(dir.stored_dtype), at::kCPU);
  for (at::Tensor& parameter : model->parameters()) parameter.zero_();
  CallTable table;
  const ObserveCalls observe(table);
  model->all_logits(probe_batches(config).back());
  table.repeat("language_model.model.layers.", dir.config.text.layers);
  return table;
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

void print_table(const std::vector<Row>& rows) {
  const std::vector<std::string> head = {"layer", "type", "input", "output", "parameters", "dtype"};
  std::vector<std::vector<std::string>> lines = {head};
  for (const Row& row : rows) {
    const std::string parameters = row.parameters == 0 ? "-" : with_commas(row.parameters);
    lines.push_back({escape_text(row.path), row.type, row.input, row.output, parameters, row.dtype});
  }
  std::vector<size_t> widths(head.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string gap(widths[i] - line[i].size(), ' ');
      text += (i == 0 ? "" : "  ") + (i == 4 ? gap + line[i] : line[i] + gap);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::puts(text.c_str());
  }
}

void print_totals(const ModelDir& dir) {
  std::map<std::string, int64_t> parameters;
  int64_t total = 0;
  uint64_t bytes = 0;
  for (const auto& [name, place] : dir.tensors) {
    const TensorInfo& info = dir.info(place);
    parameters[name.substr(0, name.find('.'))] += info.numel();
    total += info.numel();
    bytes += info.bytes;
  }
  std::puts("");
  for (const auto& [tower, count] : parameters) std::printf("%s: %s parameters\n", tower.c_str(), with_commas(count).c_str());
  std::printf("total: %s parameters, %s as stored\n", with_commas(total).c_str(), format_bytes(static_cast<double>(bytes)).c_str());
}

void summary(const std::string& path) {
  const ModelDir dir = ModelDir::open(path);
  CallTable table = run_probe(dir);
  table.count(dir);
  print_table(table.rows);
  print_totals(dir);
}

}  // namespace

void add_summary(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("summary", "input shape, output shape, parameters and dtype of every layer");
  command->add_option("MODEL_DIR", *path, "model directory in HF layout")->required();
  command->callback([path] { summary(*path); });
}

}  // namespace lft::cli
