#include "src/train/proof/first_loss_trials.h"

#include <algorithm>
#include <set>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/without_adapters.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/encode.h"
#include "src/train/proof/first_loss.h"
#include "src/train/step/global_batch.h"
#include "src/train/weights/inspect_base.h"

namespace lft::train {
namespace {

constexpr size_t kSuspicions = 3;  // limit of reported suspicions about the base

/// The probe's rows under another template; empty if they cannot be encoded again.
std::vector<data::Sample> under_template(const Probe& probe, const RunInputs& inputs,
                                         const std::string& name, std::set<std::string>& tried) {
  if (name == "mistral" && probe.encode.config.text.model_type != name) return {};
  const text::Tokenizer& tokenizer = *inputs.data.tokenizer;
  data::EncodeOptions options = probe.encode;
  std::vector<data::Sample> samples;
  try {
    std::vector<std::string> notices;
    options.chat = data::choose_chat(inputs.recipe.model.path, options.config, tokenizer,
                                     {.template_name = name}, tokenizer.eos_token(), notices);
    const bool of_another = !options.chat->notes().empty();  // whose end is no token here
    if (of_another || !tried.insert(options.chat->hash()).second) return {};
    options.eos = options.chat->end();
    for (size_t i = 0; i < probe.samples.size(); ++i) {
      const data::Row row = inputs.data.train->row(probe.indices[i]);
      if (row.images.size() != probe.samples[i].images.size()) return {};
      const std::vector<int32_t> shown = inputs.data.train->image_numbers(probe.indices[i]);
      const std::string root = shown.empty() ? inputs.recipe.data.image_root
                                             : inputs.data.train->image_root(shown.front());
      samples.push_back(data::encode_row(row, root, tokenizer, options));
    }
  } catch (const Error&) {
    return {};  // a row that does not fit this template is no evidence
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
  std::vector<std::string> names = data::template_names();
  names.emplace_back("auto");
  std::set<std::string> hashes = {probe.encode.chat->hash()};
  Phase phase("loss with other templates", std::ssize(names), "after this template");
  for (const std::string& name : names) {
    phase.add();
    if (requested_signal() != 0) return tried;
    const std::vector<data::Sample> samples = under_template(probe, inputs, name, hashes);
    if (supervised_tokens(samples) > 0)
      tell("under data.template: " + name, mean_loss(model, probe, samples, probe.compute),
           "the template");
  }
  if (!inputs.recipe.lora.init_from.empty()) {
    const lora::WithoutAdapters without(*model);
    tell("without lora.init_from", mean_loss(model, probe, probe.samples, probe.compute),
         "the adapter");
  }
  const std::vector<Suspicion> odd = inspect_base(inputs.files.dir.path).suspicions;
  if (odd.empty()) tried.push_back("nothing looks odd in the base's own weights");
  for (size_t i = 0; i < std::min(kSuspicions, odd.size()); ++i)
    tried.push_back("the base looks odd: " + odd[i].name + ": " + odd[i].what);
  return tried;
}

}  // namespace lft::train
