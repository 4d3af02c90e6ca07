#include "src/train/proof/first_loss_trials.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "models/lora/without_adapters.h"
#include "src/base/text.h"
#include "src/text/chat_template.h"
#include "src/train/proof/first_loss.h"
#include "src/train/weights/inspect_base.h"

namespace lft::train {
namespace {

constexpr size_t kSuspicions = 3;  // of the base that are told

/// The probe's rows under another template; empty where they cannot be encoded again.
std::vector<data::Sample> under_template(const Probe& probe, const RunInputs& inputs,
                                         const std::string& name) {
  const std::string decoder = text::template_decoder(name), end = text::template_end(name);
  if (!decoder.empty() && decoder != probe.encode.config.text.model_type) return {};
  if (!end.empty() && inputs.data.tokenizer->id_of(end) < 0) return {};  // of another family
  data::EncodeOptions options = probe.encode;
  options.template_name = name;
  std::vector<data::Sample> samples;
  try {
    for (size_t i = 0; i < probe.samples.size(); ++i) {
      const data::Row row = inputs.data.train->row(probe.indices[i]);
      if (row.images.size() != probe.samples[i].images.size()) return {};
      const std::vector<int32_t> shown = inputs.data.train->image_numbers(probe.indices[i]);
      const std::string root = shown.empty() ? inputs.recipe.data.image_root
                                             : inputs.data.train->image_root(shown.front());
      samples.push_back(data::encode_row(row, root, *inputs.data.tokenizer, options));
    }
  } catch (const Error&) {
    return {};  // what does not fit this template is no suspect
  }
  return samples;
}

}  // namespace

std::vector<std::string> try_suspects(family::Model& model, const Probe& probe,
                                      const RunInputs& inputs, const FirstLoss& first) {
  std::vector<std::string> tried;
  const auto tell = [&](const std::string& change, double loss, const std::string& culprit) {
    tried.push_back(change + " it is " + format_number(loss, "%.4g") +
                    (first.explained_by(loss) ? ", so " + culprit + " is at fault" : ""));
  };
  for (const std::string& name : text::template_names()) {
    if (name == probe.encode.template_name) continue;
    const std::vector<data::Sample> samples = under_template(probe, inputs, name);
    int64_t supervised = 0;
    for (const data::Sample& sample : samples) supervised += sample.supervised();
    if (supervised > 0)
      tell("under data.template: " + name, mean_loss(model, probe, samples, probe.compute),
           "the template");
  }
  if (!inputs.recipe.lora.init_from.empty()) {
    const lora::WithoutAdapters without(*model);
    tell("without lora.init_from", mean_loss(model, probe, probe.samples, probe.compute),
         "the adapter");
  }
  const std::vector<Suspicion> odd = inspect_base(inputs.model.dir.path).suspicions;
  if (odd.empty()) tried.push_back("nothing looks odd in the base's own weights");
  for (size_t i = 0; i < std::min(kSuspicions, odd.size()); ++i)
    tried.push_back("the base looks odd: " + odd[i].name + ": " + odd[i].what);
  return tried;
}

}  // namespace lft::train
