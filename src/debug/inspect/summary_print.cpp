#include <algorithm>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/inspect/summary.h"

namespace lft::debug {
namespace {

std::string count_text(int64_t number) { return number == 0 ? "-" : with_commas(number); }
std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<double>(bytes));
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
  std::vector<std::string> lines = table(summary.rows);
  lines.emplace_back();
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
