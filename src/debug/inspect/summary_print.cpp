#include "src/debug/inspect/summary_print.h"

#include <algorithm>
#include <charconv>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/inspect/summary.h"

namespace lft::debug {
namespace {

std::string count_text(int64_t number) { return number == 0 ? "-" : with_commas(number); }
std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<double>(bytes));
}

/// A path that contains a layer number: "a.layers.7.b".
struct Numbered {
  std::string before, after;  // "a.layers.", ".b"
  int64_t number = -1;        // -1: no part is a number
};
Numbered split_path(const std::string& path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    int64_t number = -1;
    const auto [stop, code] = std::from_chars(path.data() + begin, path.data() + end, number);
    if (code == std::errc{} && stop == path.data() + end)
      return {path.substr(0, begin), path.substr(end), number};
    begin = end + 1;
  }
  return {};
}

/// Rows from `begin` on that belong to the same layer.
size_t layer_size(const std::vector<SummaryRow>& rows, size_t begin) {
  const Numbered layer = split_path(rows[begin].path);
  size_t end = begin;
  while (end < rows.size()) {
    const Numbered row = split_path(rows[end].path);
    if (row.number != layer.number || row.before != layer.before) break;
    ++end;
  }
  return end - begin;
}

/// Whether the layer this many layers after the one at `begin` has the same rows and a number
/// higher by as many.
bool is_equal_layer(const std::vector<SummaryRow>& rows, size_t begin, size_t size,
                    int64_t between) {
  const size_t other = begin + size * static_cast<size_t>(between);
  if (other + size > rows.size() || layer_size(rows, other) != size) return false;
  for (size_t i = 0; i < size; ++i) {
    const Numbered a = split_path(rows[begin + i].path), b = split_path(rows[other + i].path);
    SummaryRow same = rows[other + i];
    same.path = rows[begin + i].path;
    if (a.before != b.before || a.after != b.after || a.number + between != b.number ||
        same != rows[begin + i])
      return false;
  }
  return true;
}

/// Merges consecutive equal layers, "layers.0-31", and sums their counts.
std::vector<SummaryRow> collapsed(const std::vector<SummaryRow>& rows) {
  std::vector<SummaryRow> out;
  for (size_t i = 0; i < rows.size();) {
    const Numbered first = split_path(rows[i].path);
    const size_t size = first.number < 0 ? 1 : layer_size(rows, i);
    int64_t layers = 1;
    while (first.number >= 0 && is_equal_layer(rows, i, size, layers)) ++layers;
    for (size_t k = i; k < i + size; ++k) {
      SummaryRow& row = out.emplace_back(rows[k]);
      if (layers == 1) continue;
      row.path = first.before + std::to_string(first.number) + "-" +
                 std::to_string(first.number + layers - 1) + split_path(rows[k].path).after;
      for (int64_t* count : {&row.parameters, &row.trainable, &row.multiply_adds, &row.output_bytes,
                             &row.parameter_bytes})
        *count *= layers;
    }
    i += size * static_cast<size_t>(layers);
  }
  return out;
}

struct Column {
  const char* name;
  bool right;
};
constexpr Column kColumns[] = {
    {"layer", false},        {"type", false},         {"input", false},        {"output", false},
    {"multiply-adds", true}, {"output memory", true}, {"weight memory", true}, {"trainable", true},
    {"parameters", true},    {"dtype", false}};

std::vector<std::string> cells(const SummaryRow& row) {
  return {escape_text(row.path),
          row.type,
          row.input,
          row.output,
          count_text(row.multiply_adds),
          bytes_text(row.output_bytes),
          bytes_text(row.parameter_bytes),
          count_text(row.trainable),
          count_text(row.parameters),
          row.dtype};
}

std::vector<std::string> table(const std::vector<SummaryRow>& rows) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : kColumns) lines[0].emplace_back(column.name);
  for (const SummaryRow& row : rows) lines.push_back(cells(row));
  std::vector<size_t> widths(std::size(kColumns));
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::vector<std::string> result;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string gap(widths[i] - line[i].size(), ' ');
      text += (i == 0 ? "" : "  ") + (kColumns[i].right ? gap + line[i] : line[i] + gap);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    result.push_back(text);
  }
  return result;
}

}  // namespace

std::vector<std::string> summary_lines(const Summary& summary) {
  const std::vector<SummaryRow> rows = collapsed(summary.rows);
  std::vector<std::string> lines = table(rows);
  lines.emplace_back();
  if (rows.size() < summary.rows.size())
    lines.emplace_back("a row of several layers has their counts together, and the shape of one");
  for (const auto& [tower, count] : summary.towers)
    lines.push_back(tower + ": " + with_commas(count) + " parameters");
  lines.push_back("total: " + with_commas(summary.parameters) + " parameters, " +
                  format_bytes(static_cast<double>(summary.parameter_bytes)) + " as stored");
  if (summary.trainable > 0) {
    const double share =
        100.0 * static_cast<double>(summary.trainable) / static_cast<double>(summary.parameters);
    lines.push_back("trainable: " + with_commas(summary.trainable) + " parameters, " +
                    format_number(share, "%.2f%%"));
  }
  lines.push_back("batch: " + summary.batch + ", " +
                  format_bytes(static_cast<double>(summary.input_bytes)));
  lines.push_back("multiply-adds: " + with_commas(summary.multiply_adds) + " in the forward pass");
  lines.push_back(
      "forward/backward pass: " + format_bytes(static_cast<double>(summary.activation_bytes)) +
      " (outputs of the innermost modules and their gradients; lft check says what a run really "
      "needs)");
  lines.push_back("estimated total: " +
                  format_bytes(static_cast<double>(summary.input_bytes + summary.activation_bytes +
                                                   summary.parameter_bytes)) +
                  " (batch, forward/backward pass, parameters)");
  return lines;
}

}  // namespace lft::debug
