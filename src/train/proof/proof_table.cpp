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

constexpr size_t kWidth = 80;

/// Rows that print as one: equal layers of a stack, with "#" for their number in `name`.
struct Line {
  std::string name;
  std::vector<int64_t> layers;
  const ProofRow* first = nullptr;
  int64_t modules = 0, parameters = 0;
  double least_a = 0, least_b = 0;  // gradient norms
};

std::string short_name(const std::string& module) {
  const std::string decoder = family::kDecoder, vision = family::kVision;
  for (const std::string& prefix :
       {decoder + "model.", decoder, vision + "vision_model.encoder.", vision + "vision_model.",
        vision, std::string(family::kProjector)}) {
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

std::vector<Line> lines_of(const TrainabilityReport& proof) {
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, bool, bool, int64_t, double>;
  std::vector<Line> lines;
  std::map<Key, size_t> places;
  for (const ProofRow& row : proof.rows) {
    const auto [name, layer] = split_layer(short_name(row.module));
    const Key key{row.scope,   name,          row.dtype,      row.group,
                  row.adapter, row.reachable, row.parameters, row.lr};
    const auto [at, fresh] = places.try_emplace(key, lines.size());
    if (fresh)
      lines.push_back({.name = name,
                       .layers = {},
                       .first = &row,
                       .least_a = row.grad_norm_a,
                       .least_b = row.grad_norm_b});
    Line& line = lines[at->second];
    if (layer >= 0) line.layers.push_back(layer);
    ++line.modules;
    line.parameters += row.parameters;
    line.least_a = std::min(line.least_a, row.grad_norm_a);
    line.least_b = std::min(line.least_b, row.grad_norm_b);
  }
  return lines;
}

std::string norm_cell(double value) { return std::isfinite(value) ? format_number(value) : "?"; }

std::string rate_text(const ProofRow& row) {
  const std::string low = norm_cell(row.lr), high = norm_cell(row.lr_b);
  return low == high ? low : low + " and " + high;
}

/// A column; one with the same text in all rows is named once below the table.
struct Column {
  std::string head;
  bool number = false;  // right-aligned
  std::vector<std::string> cells = {};
  size_t width() const {
    size_t width = head.size();
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    return width;
  }
  bool constant() const {
    return std::ranges::all_of(cells, [&](const auto& cell) { return cell == cells.front(); });
  }
};

std::string placed(const Column& column, const std::string& text, size_t width) {
  const std::string gap(width - text.size(), ' ');
  return column.number ? gap + text : text + gap;
}

/// The first column is the row's name; it is on a separate line if the table is too wide.
void add_table(const std::vector<Column>& columns, std::vector<std::string>& lines) {
  size_t total = columns.front().width();
  for (size_t c = 1; c < columns.size(); ++c) total += 2 + columns[c].width();
  const bool wide = total > kWidth;
  for (size_t row = 0; row <= columns.front().cells.size(); ++row) {
    const auto cell = [&](const Column& column) {
      return row == 0 ? column.head : column.cells[row - 1];
    };
    std::string text =
        wide ? "" : placed(columns.front(), cell(columns.front()), columns.front().width());
    if (wide) lines.push_back(cell(columns.front()));
    for (size_t c = 1; c < columns.size(); ++c)
      text += "  " + placed(columns[c], cell(columns[c]), columns[c].width());
    text.erase(text.find_last_not_of(' ') + 1);
    lines.push_back(text);
  }
}

void add_excluded(const TrainabilityReport& proof, std::vector<std::string>& lines) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const ExcludedModule& module : proof.excluded)
    by_reason[module.reason].push_back(module.name);
  for (const auto& [reason, names] : by_reason)
    lines.push_back("left out   " + join(names, ", ", 3) + ": " + reason);
}

/// "base: 0.01; projector: 0.003"
std::string learning_rates(const TrainabilityReport& proof) {
  std::vector<std::string> rates;
  for (const ProofRow& row : proof.rows) {
    const std::string rate = row.group + ": " + rate_text(row);
    if (std::ranges::find(rates, rate) == rates.end()) rates.push_back(rate);
  }
  return join(rates, "; ");
}

double share(int64_t trainable, int64_t total) {
  return total == 0 ? 0 : static_cast<double>(trainable) / static_cast<double>(total);
}

}  // namespace

std::vector<std::string> trainability_table(const TrainabilityReport& proof) {
  Column name{.head = "module"}, modules{.head = "modules", .number = true},
      parameters{.head = "parameters", .number = true}, dtype{.head = "dtype"},
      group{.head = "group"}, reached{.head = "reached"}, a{.head = "grad A"}, b{.head = "grad B"};
  bool whole = false;
  for (const Line& line : lines_of(proof)) {
    const ProofRow& row = *line.first;
    whole = whole || !row.adapter;
    name.cells.push_back(row.scope + " " + filled(line.name, line.layers));
    modules.cells.push_back(std::to_string(line.modules));
    parameters.cells.push_back(std::to_string(line.parameters));
    dtype.cells.push_back(row.dtype);
    group.cells.push_back(row.group);
    reached.cells.push_back(row.reachable ? "yes" : "no");
    a.cells.push_back(row.adapter ? norm_cell(line.least_a) : "-");
    b.cells.push_back(norm_cell(line.least_b));
  }
  std::vector<Column> columns = {name, modules, parameters};
  for (const Column& column : {dtype, group, reached})
    if (!column.constant()) columns.push_back(column);
  columns.insert(columns.end(), {a, b});
  std::vector<std::string> lines;
  add_table(columns, lines);
  lines.push_back("gradient   norm, the smallest of a row's modules" +
                  std::string(whole ? "; of a fully trained module below grad B" : ""));
  if (reached.constant() && reached.cells.front() == "yes")
    lines.push_back("reached    the loss depends on every module");
  lines.push_back("lr         " + learning_rates(proof) +
                  (dtype.constant() ? "; all modules in " + dtype.cells.front() : ""));
  add_excluded(proof, lines);
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
