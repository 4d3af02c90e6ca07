#include "src/train/norms/norm_watch.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/lora/trained_modules.h"
#include "src/base/numeric.h"
#include "src/base/text.h"

namespace lft::train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NormTrend, first, recent)

namespace {

constexpr size_t kFirst = 4, kWindow = 16, kNamed = 4;
constexpr int64_t kSudden = 32;
constexpr double kScatters = 4;       // smallest significant change, in scatters of one value
constexpr double kSmallest = 1e-30;   // replaces 0
constexpr double kLeastError = 1e-6;  // of 1 - exp(-loss): the resolution of float32

double log_of(double value) { return std::log(std::max(value, kSmallest)); }
double error_of(double loss) { return std::max(-std::expm1(-loss), kLeastError); }

std::string norm_text(double value) { return format_number(value < 1e-12 ? 0 : value); }

std::string listed(const std::vector<std::string>& modules) { return join(modules, ", ", kNamed); }

/// The names of the largest changes, largest first.
std::vector<std::string> by_change(std::vector<std::pair<double, std::string>> changed) {
  std::sort(changed.begin(), changed.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (auto& [change, name] : changed) names.push_back(std::move(name));
  return names;
}

constexpr const char* kLowerRate =
    "stop, and resume from a checkpoint before this step with a lower optim.lr, a longer "
    "optim.warmup_ratio or a smaller "
    "optim.clip_grad_norm";

std::string diverged_text(const NormWarning& w) {
  return "the gradient norm has risen from " + norm_text(w.before) + " to " + norm_text(w.now) +
         ", and the loss from " + norm_text(w.loss_before) + " to " + norm_text(w.loss) +
         ": divergence in progress";
}

}  // namespace

void NormTrend::add(double log_value) {
  if (first.size() < kFirst) first.push_back(log_value);
  if (recent.size() == kWindow) recent.erase(recent.begin());
  recent.push_back(log_value);
}

bool NormTrend::ready() const { return recent.size() == kWindow; }
double NormTrend::at_first() const { return median(first); }
double NormTrend::now() const { return median(recent); }

double NormTrend::scatter() const {
  std::vector<double> steps;
  for (size_t i = 1; i < recent.size(); ++i) steps.push_back(recent[i] - recent[i - 1]);
  const double middle = median(steps);
  for (double& step : steps) step = std::abs(step - middle);
  return 1.4826 * M_SQRT1_2 * median(steps);
}

bool NormWatch::fell(const NormTrend& trend, double factor) const {
  const double change = trend.at_first() - trend.now();
  return change >= std::log(factor) && change >= kScatters * trend.scatter();
}

bool NormWatch::loss_rises() const {
  if (!has_lowest_) return false;
  const double now = std::exp(loss_.now()), lowest = std::exp(lowest_loss_),
               first = std::exp(loss_.at_first());
  return now >= 1.5 * lowest && now >= 0.5 * (first + lowest) &&
         loss_.now() - lowest_loss_ >= kScatters * loss_.scatter();
}

std::vector<NormWarning> NormWatch::step(const StepNorms& step) {
  const double error = log_of(error_of(step.loss));
  loss_.add(log_of(step.loss));
  norm_.add(log_of(step.norm));
  ratio_.add(log_of(step.norm) - error);
  for (const LayerValue& module : step.modules)
    modules_[module.layer].add(log_of(module.value) - error);
  std::vector<NormWarning> warnings;
  if (!loss_.ready()) return warnings;
  // The start counts as a lowest loss, too: a run may diverge in the first 16 steps.
  if (!has_lowest_) {
    lowest_loss_ = loss_.at_first();
    norm_at_lowest_ = norm_.at_first();
    has_lowest_ = true;
  }
  if (loss_.now() < lowest_loss_) {
    lowest_loss_ = loss_.now();
    norm_at_lowest_ = norm_.now();
  }
  judge_gradient(step, warnings);
  judge_modules(warnings);
  return warnings;
}

std::vector<std::string> NormWatch::most_changed(bool upwards) const {
  std::vector<std::pair<double, std::string>> changed;
  for (const auto& [name, trend] : modules_) {
    if (trend.ready())
      changed.emplace_back((trend.now() - trend.at_first()) * (upwards ? 1 : -1), name);
  }
  std::vector<std::string> names = by_change(std::move(changed));
  if (names.size() > kNamed) names.resize(kNamed);
  return names;
}

void NormWatch::judge_gradient(const StepNorms& step, std::vector<NormWarning>& out) {
  const double loss = std::exp(loss_.now()), first_loss = std::exp(loss_.at_first());
  NormWarning warning{.now = std::exp(norm_.now()), .loss = loss};
  const double since_lowest = norm_.now() - norm_at_lowest_, noise = kScatters * norm_.scatter();
  if (loss_rises() && since_lowest >= std::log(10.0) && since_lowest >= noise &&
      once("divergence")) {
    warning.kind = "divergence";
    warning.before = std::exp(norm_at_lowest_);
    warning.loss_before = std::exp(lowest_loss_);
    warning.modules = most_changed(/*upwards=*/true);
    warning.what = diverged_text(warning) + "; most of it in " + listed(warning.modules);
    warning.next = kLowerRate;
    out.push_back(warning);
  }
  warning.before = std::exp(norm_.at_first());
  warning.loss_before = first_loss;
  const double rise = norm_.now() - norm_.at_first();
  if (rise >= std::log(1000.0) && rise >= noise && once("gradient_blow_up")) {
    warning.kind = "gradient_blow_up";
    warning.modules = most_changed(/*upwards=*/true);
    warning.what = "the gradient norm has risen from " + norm_text(warning.before) + " to " +
                   norm_text(warning.now) + ", most of it in " + listed(warning.modules) +
                   ": a norm that rises without bound is divergence in progress";
    warning.next = kLowerRate;
    out.push_back(warning);
  }
  below_tenth_ = ratio_.at_first() - ratio_.now() < std::log(10.0) ? 0 : below_tenth_ + 1;
  const bool vanished = fell(ratio_, 1000) ? loss >= 0.01 * first_loss
                                           : fell(ratio_, 100) && loss >= 0.25 * first_loss;
  if (vanished && below_tenth_ <= kSudden && once("gradient_collapse")) {
    warning.kind = "gradient_collapse";
    warning.modules = most_changed(/*upwards=*/false);
    warning.what = "the gradient norm has fallen from " + norm_text(warning.before) + " to " +
                   norm_text(warning.now) + " while the loss is still " + norm_text(loss) +
                   " (it was " + norm_text(first_loss) + "): the model has stopped learning";
    warning.next =
        "start again with a lower optim.lr or a longer optim.warmup_ratio (a rate far too high "
        "throws the weights where nothing learns); "
        "lft debug weights shows what has changed since the first checkpoint";
    out.push_back(warning);
  }
}

void NormWatch::judge_modules(std::vector<NormWarning>& out) {
  std::vector<std::pair<double, std::string>> risen, fallen;
  for (const auto& [name, trend] : modules_) {
    if (!trend.ready()) continue;
    const double change = trend.now() - trend.at_first(), share = trend.now() - ratio_.now();
    if (change >= std::log(1000.0) && change >= kScatters * trend.scatter() &&
        share >= std::log(0.1))
      risen.emplace_back(change, name);
    if (fell(trend, 1000) && share <= -std::log(1000.0)) fallen.emplace_back(-change, name);
  }
  const double loss = std::exp(loss_.now()), first_loss = std::exp(loss_.at_first()),
               error = error_of(loss), first_error = error_of(first_loss);
  NormWarning warning{.loss = loss, .loss_before = first_loss};
  const auto measure = [&](const std::string& name) {
    warning.now = std::exp(modules_.at(name).now()) * error;
    warning.before = std::exp(modules_.at(name).at_first()) * first_error;
    return name + " from " + norm_text(warning.before) + " to " + norm_text(warning.now);
  };
  if (!risen.empty() && once("gradient_blow_up")) {
    warning.kind = "gradient_blow_up";
    warning.modules = by_change(risen);
    warning.what = "the gradient of a module rises and is a tenth of the whole or more (" +
                   measure(warning.modules.front()) +
                   "): a norm that rises without bound is divergence in progress; so far " +
                   listed(warning.modules);
    warning.next = kLowerRate + std::string(", or take these modules out of lora.targets");
    out.push_back(warning);
  }
  if (!fallen.empty() && loss >= 0.01 * first_loss && once("module_collapse")) {
    warning.kind = "module_collapse";
    warning.modules = by_change(fallen);
    warning.what = std::to_string(fallen.size()) + " of " + std::to_string(modules_.size()) +
                   " trained modules have stopped learning, their " +
                   "gradient has all but vanished (" + measure(warning.modules.front()) +
                   "): " + listed(warning.modules);
    warning.next =
        "look at what these modules and those before them compute (lft debug nan prints every "
        "output's range; lft debug weights, what "
        "has changed); lower optim.lr, or take them out of lora.targets";
    out.push_back(warning);
  }
}

std::vector<NormWarning> NormWatch::activations(const std::vector<LayerValue>& rms) {
  std::vector<std::pair<double, std::string>> risen, fallen;
  for (const LayerValue& layer : rms) {
    Activation& seen = activations_[layer.layer];
    seen.before_last = seen.last;
    seen.last = std::isfinite(layer.value)
                    ? std::max(layer.value, kSmallest)
                    : seen.last;  // a non-finite value ends the step by itself
    if (seen.first == 0) seen.first = seen.last;
    if (seen.before_last == 0) continue;
    const double low = std::min(seen.last, seen.before_last) / seen.first,
                 high = std::max(seen.last, seen.before_last) / seen.first;
    if (low >= (loss_rises() ? 10 : 100)) risen.emplace_back(low, layer.layer);
    if (high <= 0.01) fallen.emplace_back(1 / high, layer.layer);
  }
  std::vector<NormWarning> out;
  const auto warn = [&](const char* kind, const auto& changed, const std::string& what,
                        const std::string& next) {
    if (changed.empty() || !once(kind)) return;
    NormWarning warning{.kind = kind, .modules = by_change(changed), .next = next};
    const Activation& worst = activations_.at(warning.modules.front());
    warning.now = worst.last;
    warning.before = worst.first;
    if (!loss_.recent.empty())
      warning.loss = std::exp(loss_.now()), warning.loss_before = std::exp(loss_.at_first());
    warning.what = what + " in " + std::to_string(changed.size()) + " of " +
                   std::to_string(activations_.size()) + " layers (" + warning.modules.front() +
                   " from " + norm_text(warning.before) + " to " + norm_text(warning.now) +
                   "): " + listed(warning.modules);
    out.push_back(warning);
  };
  warn("activation_blow_up", risen,
       "activations rise without bound, which is divergence in progress,",
       std::string(kLowerRate) + "; fp16 ends at 65504, bf16 or fp32 does not");
  warn("activation_collapse", fallen, "activations die away",
       "what comes after these layers learns from almost nothing: lower optim.lr, and look at them "
       "with lft debug weights");
  return out;
}

io::Json warning_json(const NormWarning& w) {
  return {{"kind", w.kind},     {"modules", w.modules}, {"now", w.now},
          {"before", w.before}, {"loss_now", w.loss},   {"loss_before", w.loss_before},
          {"what", w.what},     {"next", w.next}};
}

std::string warning_line(const NormWarning& warning, int64_t step) {
  return "warning: step " + std::to_string(step) + ": " + warning.what + ". Next: " + warning.next;
}

io::Json NormWatch::state() const {
  io::Json activations = io::Json::object(), lowest = io::Json::array();
  for (const auto& [name, seen] : activations_)
    activations[name] = {seen.first, seen.last, seen.before_last};
  if (has_lowest_) lowest = {lowest_loss_, norm_at_lowest_};
  return {{"loss", loss_},
          {"norm", norm_},
          {"ratio", ratio_},
          {"modules", modules_},
          {"activations", activations},
          {"lowest", lowest},
          {"below_tenth", below_tenth_},
          {"warned", warned_}};
}

void NormWatch::restore(const io::Json& state) {
  *this = {};
  if (state.empty()) return;
  state.at("loss").get_to(loss_);
  state.at("norm").get_to(norm_);
  state.at("ratio").get_to(ratio_);
  state.at("modules").get_to(modules_);
  for (const auto& [name, json] : state.at("activations").items()) {
    const auto seen = json.get<std::array<double, 3>>();
    activations_[name] = {seen[0], seen[1], seen[2]};
  }
  has_lowest_ = !state.at("lowest").empty();
  if (has_lowest_) {
    state.at("lowest").at(0).get_to(lowest_loss_);
    state.at("lowest").at(1).get_to(norm_at_lowest_);
  }
  state.at("below_tenth").get_to(below_tenth_);
  state.at("warned").get_to(warned_);
}

std::vector<LayerValue> module_grad_norms(const Optimizer& optimizer,
                                          const std::vector<double>& norms, bool has_image) {
  std::vector<LayerValue> modules;
  for (size_t i = 0; i < norms.size(); ++i) {
    const lora::Trainable& tensor = optimizer.slots()[i].param;
    if (!has_image && tensor.scope != "llm") continue;
    const std::string name = lora::module_of(tensor.name);
    // The tensors of a module are consecutive.
    if (modules.empty() || modules.back().layer != name) modules.push_back({name, 0});
    modules.back().value = std::hypot(modules.back().value, norms[i]);
  }
  return modules;
}

}  // namespace lft::train
