// Rows over a tiny model, one per line, that a test can corrupt; and the findings of validate.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "debug/names.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/data/prepared_write.h"
#include "src/debug/data/validate.h"
#include "src/debug/data/validate_print.h"
#include "src/hf/model_dir.h"
#include "train/tiny_run.h"

namespace lft::test {

/// A LLaVA row; without an image if `image` is empty.
inline nlohmann::json row(const std::string& id, const std::string& image,
                          const std::string& question, const std::string& answer) {
  nlohmann::json json = {
      {"id", id},
      {"conversations",
       {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", answer}}}}};
  if (!image.empty()) json["image"] = image;
  return json;
}

/// A golden file of tests/goldens/images.
inline std::string golden_image(const std::string& name) {
  return slurp(LFT_SOURCE_DIR "/tests/goldens/images/" + name);
}

/// A data set some of whose samples differ from its rows.
class ChangedSamples : public data::Dataset {
 public:
  using Change = std::function<void(int64_t index, data::Sample& sample)>;
  ChangedSamples(std::unique_ptr<data::Dataset> whole, Change change)
      : whole_(std::move(whole)), change_(std::move(change)) {}
  int64_t size() const override { return whole_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = whole_->get(index);
    if (change_) change_(index, sample);
    return sample;
  }
  std::string id(int64_t index) const override { return whole_->id(index); }
  std::vector<std::string> image_paths(int64_t index) const override {
    return whole_->image_paths(index);
  }
  data::Row row(int64_t index) const override { return whole_->row(index); }
  std::string hash() const override { return whole_->hash(); }

 private:
  std::unique_ptr<data::Dataset> whole_;
  Change change_;
};

class DataTest : public ::testing::Test {
 protected:
  static constexpr int kRows = 12;
  DataTest() : run_(kRows), recipe_(run_.recipe("out")) {
    recipe_.data.eval.clear();
    for (const nlohmann::json& each : nlohmann::json::parse(slurp(run_.dir().file("rows.json"))))
      lines_.push_back(each.dump());
  }

  nlohmann::json json_row(size_t index) const { return nlohmann::json::parse(lines_[index]); }
  /// One line per row; returns the file, which is then data.train.
  std::string save() {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    recipe_.data.train = run_.dir().write("rows.jsonl", text);
    return recipe_.data.train.path;
  }
  std::string line(size_t index) const {
    return run_.dir().file("rows.jsonl") + ":" + std::to_string(index + 1);
  }
  DataReport validate(int64_t workers = 2) {
    save();
    return validate_data(recipe_, workers);
  }
  /// Prepares the rows, with the template llava-hf; from then on the recipe trains on that.
  std::unique_ptr<data::Dataset> prepare(bool skip_bad = false,
                                         const ChangedSamples::Change& change = {}) {
    const auto tokenizer = text::Tokenizer::load(recipe_.model.path);
    data::EncodeOptions options = data::encode_options(
        recipe_.model.path, hf::ModelDir::config_only(recipe_.model.path).config, *tokenizer,
        {{"llava-hf", "pad"}, 2048}, nullptr);
    options.skip_bad = skip_bad;
    const std::string prepared = run_.dir().file("prepared");
    const ChangedSamples samples(
        data::open_dataset(recipe_.data.train.path, recipe_.data.image_root, *tokenizer, options),
        change);
    data::prepare_dataset(samples, options, prepared);
    recipe_.data.train = prepared;
    return data::open_dataset(prepared, "", *tokenizer, options);
  }
  /// The rows have this fault, these lines and this reason, and no other fault.
  static void expect_only(const DataReport& report, DataFault fault,
                          const std::vector<std::string>& where, const std::string& reason) {
    EXPECT_EQ(report.counts,
              (std::map<DataFault, int64_t>{{fault, static_cast<int64_t>(where.size())}}))
        << data_report_text(report);
    if (!report.first.contains(fault)) return;
    std::vector<std::string> found;
    for (const DataProblem& problem : report.first.at(fault)) {
      found.push_back(problem.where);
      EXPECT_NE(problem.reason.find(reason), std::string::npos)
          << "no \"" << reason << "\" in: " << problem.reason;
    }
    EXPECT_EQ(found, where);
    EXPECT_EQ(report.errors(), is_warning(fault) ? 0 : static_cast<int64_t>(where.size()));
  }

  TinyRun run_;
  Recipe recipe_;
  std::vector<std::string> lines_;
};

}  // namespace lft::test
