// The proof as lines for a terminal and as JSON.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "src/base/text.h"
#include "src/train/inputs/run_model.h"
#include "src/train/proof/proof.h"

namespace lft::train {
namespace {

/// Rows that print as one: equal layers of a stack, with "#" for their number in `name`.
struct Line {
  std::string name;
  std::vector<int64_t> layers;
  const ProofRow* first = nullptr;
  int64_t parameters = 0;
  double a_low = 0, a_high = 0, b_low = 0, b_high = 0;
};

std::string short_name(const std::string& module) {
  const std::string decoder = family::kDecoder, vision = family::kVision;
  for (const std::string& prefix :
       {decoder + "model.", decoder, vision + "vision_model.", std::string(family::kProjector)}) {
    if (module.starts_with(prefix)) return module.substr(prefix.size());
  }
  return module;
}

/// "layers.3.mlp" -> "layers.#.mlp" and 3; -1 and the name itself if no part is a number.
std::pair<std::string, int64_t> split_layer(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 10 &&
        part.find_first_not_of("0123456789") == std::string::npos) {
      return {name.substr(0, begin) + "#" + name.substr(end), std::stoll(part)};
    }
    begin = end + 1;
  }
  return {name, -1};
}

/// For example "0-31" or "0-2,5".
std::string ranges_text(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]) +
            (last > i ? "-" + std::to_string(numbers[last]) : "");
    i = last + 1;
  }
  return text;
}

std::string filled(const std::string& name, const std::vector<int64_t>& layers) {
  const size_t at = name.find('#');
  return layers.empty() || at == std::string::npos
             ? name
             : name.substr(0, at) + ranges_text(layers) + name.substr(at + 1);
}

void widen(double value, bool first, double& low, double& high) {
  low = first ? value : std::min(low, value);
  high = first ? value : std::max(high, value);
}

std::vector<Line> lines_of(const TrainabilityReport& proof, bool collapsed) {
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, bool, bool, int64_t, double>;
  std::vector<Line> lines;
  std::map<Key, size_t> places;
  for (const ProofRow& row : proof.rows) {
    std::pair<std::string, int64_t> split = {short_name(row.module), -1};
    if (collapsed) split = split_layer(split.first);
    const Key key{row.scope,   split.first,   row.dtype,      row.group,
                  row.adapter, row.reachable, row.parameters, row.lr};
    const auto [at, fresh] = places.try_emplace(key, lines.size());
    if (fresh) lines.push_back({.name = split.first, .layers = {}, .first = &row});
    Line& line = lines[at->second];
    if (split.second >= 0) line.layers.push_back(split.second);
    line.parameters += row.parameters;
    widen(row.grad_norm_a, fresh, line.a_low, line.a_high);
    widen(row.grad_norm_b, fresh, line.b_low, line.b_high);
  }
  return lines;
}

std::string norm_cell(double value) { return std::isfinite(value) ? format_number(value) : "?"; }

std::string span(double low, double high) {
  const std::string from = norm_cell(low), to = norm_cell(high);
  return from == to ? from : from + ".." + to;
}

void align(const std::vector<std::vector<std::string>>& cells, std::vector<std::string>& lines) {
  std::vector<size_t> widths(cells.front().size());
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : cells) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      text += (i == 0 ? "" : "  ") +
              (i == 1 ? gap + row[i] : row[i] + gap);  // the count is right-aligned
    }
    text.erase(text.find_last_not_of(' ') + 1);
    lines.push_back(text);
  }
}

void add_excluded(const TrainabilityReport& proof, bool collapsed,
                  std::vector<std::string>& lines) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const ExcludedModule& module : proof.excluded) {
    if (!collapsed) lines.push_back("left out   " + module.name + ": " + module.reason);
    by_reason[module.reason].push_back(module.name);
  }
  if (!collapsed) return;
  for (const auto& [reason, names] : by_reason)
    lines.push_back("left out   " + join(names, ", ", 3) + ": " + reason);
}

double share(int64_t trainable, int64_t total) {
  return total == 0 ? 0 : static_cast<double>(trainable) / static_cast<double>(total);
}

}  // namespace

std::vector<std::string> trainability_table(const TrainabilityReport& proof, bool collapsed) {
  std::vector<std::vector<std::string>> cells = {
      {"module", "parameters", "dtype", "lr", "group", "reached", "grad A", "grad B / full"}};
  for (const Line& line : lines_of(proof, collapsed)) {
    const ProofRow& row = *line.first;
    cells.push_back(
        {row.scope + " " + filled(line.name, line.layers), std::to_string(line.parameters),
         row.dtype, span(row.lr, row.lr_b), row.group, row.reachable ? "yes" : "no",
         row.adapter ? span(line.a_low, line.a_high) : "-", span(line.b_low, line.b_high)});
  }
  std::vector<std::string> lines;
  align(cells, lines);
  add_excluded(proof, collapsed, lines);
  if (!proof.probe_finite) {
    lines.push_back("the loss or a gradient of the probe batch is not finite in " + proof.compute +
                    ": only reachability is proven");
  }
  if (proof.underflowed > 0) {
    lines.push_back(std::to_string(proof.underflowed) +
                    " modules have a gradient in FP32 (shown) that underflows to 0 in " +
                    proof.compute);
  }
  lines.push_back("trains " + trained_share(proof.trainable, proof.total) + " in " +
                  std::to_string(proof.rows.size()) + " modules");
  return lines;
}

io::Json trainability_json(const TrainabilityReport& proof) {
  io::Json modules = io::Json::array(), excluded = io::Json::array();
  for (const ProofRow& row : proof.rows) {
    io::Json module = {{"module", row.module},
                       {"scope", row.scope},
                       {"kind", row.adapter ? "adapter" : "whole"},
                       {"parameters", row.parameters},
                       {"dtype", row.dtype},
                       {"lr", row.lr},
                       {"group", row.group},
                       {"reachable", row.reachable},
                       {"grad_norm", row.grad_norm_b}};
    if (row.adapter) {
      module.erase("grad_norm");
      module["grad_norm_a"] = row.grad_norm_a;
      module["grad_norm_b"] = row.grad_norm_b;
    }
    if (row.lr_b != row.lr) module["lr_b"] = row.lr_b;
    modules.push_back(std::move(module));
  }
  for (const ExcludedModule& module : proof.excluded)
    excluded.push_back({{"module", module.name}, {"reason", module.reason}});
  return {{"trainable_parameters", proof.trainable},
          {"parameters", proof.total},
          {"share", share(proof.trainable, proof.total)},
          {"modules", modules},
          {"excluded", excluded},
          {"probe",
           {{"samples", proof.probe_ids},
            {"loss", proof.probe_loss},
            {"finite", proof.probe_finite},
            {"precision", proof.compute},
            {"loss_scale", proof.loss_scale},
            {"underflowed_modules", proof.underflowed}}}};
}

}  // namespace lft::train
