#include "src/report/layer_map.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/family/scopes.h"

namespace lft::report {
namespace {

struct Row {
  std::string name, label;
  int64_t tower = 0, number = -1;  // number -1: not in a stack
  bool operator<(const Row& other) const {
    return std::tie(tower, number, name) < std::tie(other.tower, other.number, other.name);
  }
};

Row row_of(const std::string& name) {
  Row row{.name = name, .label = name};
  constexpr std::pair<std::string_view, std::string_view> kTowers[] = {
      {family::kVision, "vision"}, {family::kProjector, "projector"}, {family::kDecoder, "llm"}};
  std::string_view tower = name;
  for (const auto& [prefix, label] : kTowers) {
    if ((name + ".").starts_with(prefix)) {
      tower = label;
      break;
    }
    ++row.tower;
  }
  const std::string_view digits = std::string_view(name).substr(name.rfind('.') + 1);
  if (!digits.empty() && digits.size() < 9 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    row.number = std::stoll(std::string(digits));
    row.label = std::string(tower) + " " + std::string(digits);
  } else if (name + "." == family::kProjector) {
    row.label = tower;
  }
  return row;
}

}  // namespace

io::Json layer_map(const std::map<int64_t, io::Json>& records) {
  if (records.empty()) return nullptr;
  std::vector<int64_t> steps;
  steps.reserve(records.size());
  for (const auto& [step, record] : records) steps.push_back(step);
  const size_t columns = std::min(steps.size(), kMaxColumns), last = steps.size() - 1;
  std::vector<int64_t> shown = {steps.front()};
  for (size_t c = 1; c < columns; ++c) shown.push_back(steps[last * c / (columns - 1)]);

  std::set<Row> rows;
  for (const int64_t step : shown) {
    for (const auto& [name, value] : records.at(step).at("layers").items())
      rows.insert(row_of(name));
  }
  io::Json map = {{"steps", shown},
                  {"rows", io::Json::array()},
                  {"names", io::Json::array()},
                  {"values", io::Json::array()}};
  for (const Row& row : rows) {
    io::Json values = io::Json::array();
    for (const int64_t step : shown) {
      const io::Json& layers = records.at(step).at("layers");
      const auto found = layers.find(row.name);
      values.push_back(found == layers.end() ? io::Json(false)
                       : found->is_number()  ? *found
                                             : io::Json(nullptr));
    }
    map["rows"].push_back(row.label);
    map["names"].push_back(row.name);
    map["values"].push_back(std::move(values));
  }
  return map;
}

}  // namespace lft::report
