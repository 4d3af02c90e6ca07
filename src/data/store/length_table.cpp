#include "src/data/store/length_table.h"

#include <array>

#include "src/base/log.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

constexpr char kTableKind[] = "lengths 3";
constexpr size_t kFigures = 5;

}  // namespace

LengthTable::LengthTable(const std::vector<SampleLength>& lengths) {
  std::vector<int32_t> tokens, longest, shared, supervised, cut, figure;
  std::vector<int64_t> reading, figures;
  std::map<std::array<int64_t, kFigures>, int32_t> known;
  for (const SampleLength& each : lengths) {
    tokens.push_back(each.tokens);
    longest.push_back(each.longest);
    shared.push_back(each.shared);
    supervised.push_back(each.supervised);
    cut.push_back(each.cut);
    reading.push_back(each.reading);
    const std::array<int64_t, kFigures> own = {each.images, each.values, each.tower, each.placed,
                                               each.sides};
    const auto [found, fresh] = known.emplace(own, static_cast<int32_t>(known.size()));
    if (fresh) figures.insert(figures.end(), own.begin(), own.end());
    figure.push_back(found->second);
  }
  columns_.set("tokens", std::move(tokens));
  columns_.set("longest", std::move(longest));
  columns_.set("shared", std::move(shared));
  columns_.set("supervised", std::move(supervised));
  columns_.set("cut", std::move(cut));
  columns_.set("figure", std::move(figure));
  columns_.set("reading", std::move(reading));
  columns_.set("figures", std::move(figures));
  view();
}

void LengthTable::view() {
  tokens_ = columns_.get<int32_t>("tokens");
  longest_ = columns_.get<int32_t>("longest");
  shared_ = columns_.get<int32_t>("shared");
  supervised_ = columns_.get<int32_t>("supervised");
  cut_ = columns_.get<int32_t>("cut");
  figure_ = columns_.get<int32_t>("figure");
  reading_ = columns_.get<int64_t>("reading");
  figures_ = columns_.get<int64_t>("figures");
}

bool LengthTable::sound() const {
  const size_t rows = tokens_.size();
  for (const int32_t figure : figure_) {
    if (figure < 0 || static_cast<size_t>(figure) * kFigures >= figures_.size()) return false;
  }
  return longest_.size() == rows && shared_.size() == rows && supervised_.size() == rows &&
         cut_.size() == rows && figure_.size() == rows && reading_.size() == rows &&
         figures_.size() % kFigures == 0;
}

std::optional<LengthTable> LengthTable::load(const std::string& path, const std::string& key,
                                             int64_t rows) {
  if (!io::path_exists(path)) return std::nullopt;
  try {
    LengthTable table;
    table.columns_ = Columns::load(path);
    const std::map<std::string, std::string>& facts = table.columns_.facts;
    if (facts.at("kind") != kTableKind || facts.at("key") != key) return std::nullopt;
    table.view();
    if (table.size() == rows && table.sound()) return table;
  } catch (const std::exception& error) {
    notice(path + " cannot be used (" + error.what() + "): it is made again");
  }
  return std::nullopt;
}

void LengthTable::save(const std::string& path, const std::string& key) const {
  Columns kept = columns_;
  kept.facts = {{"kind", kTableKind}, {"key", key}};
  kept.save(path);
}

SampleLength LengthTable::at(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const std::span<const int64_t> own =
      figures_.subspan(static_cast<size_t>(figure_[i]) * kFigures, kFigures);
  return {.tokens = tokens_[i],
          .supervised = supervised_[i],
          .images = static_cast<int32_t>(own[0]),
          .cut = cut_[i],
          .longest = longest_[i],
          .sides = static_cast<int32_t>(own[4]),
          .shared = shared_[i],
          .reading = reading_[i],
          .values = own[1],
          .tower = own[2],
          .placed = own[3]};
}

void LengthCollector::add(int64_t first, std::vector<SampleLength> lengths) {
  const std::lock_guard lock(mutex_);
  parts_.emplace(first, std::move(lengths));
}

std::vector<SampleLength> LengthCollector::take() {
  std::vector<SampleLength> all;
  for (auto& [first, part] : parts_) {
    all.insert(all.end(), part.begin(), part.end());
    part = {};
  }
  return all;
}

}  // namespace lft::data
