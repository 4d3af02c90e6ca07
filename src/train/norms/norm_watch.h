// Observes gradient and activation norms over a run and reports divergence or a model that no
// longer learns. Uses numbers only.
//
// All comparisons are logarithmic: "now" is the median of the last 16 taken steps (spikes of up to
// 7 steps have no effect), "at first" the median of the first 4, when the weights are close to the
// initial ones. A change counts if it is at least four times the scatter of neighbouring steps
// (1.4826 / sqrt(2) times the median absolute deviation of their differences: a trend does not
// contribute; the difference of two such medians scatters by 0.6 of it), and at least the factors
// below:
// divergence: now >= 10 x the norm at the lowest loss, and the loss has lost half of its decrease
// since step 1 and is >= 1.5 x its lowest value
// gradient_blow_up: now >= 1000 x at first, for any loss; also for a module once it is a tenth of
// the total
// gradient_collapse: r fell >= 100 x while the loss is above a quarter of the first, or >= 1000 x
// while it is above a hundredth; from a tenth on within 32 steps, because a slow decrease in all
// modules is typical of a run that converges to the optimum of its data
// module_collapse: a module's r fell >= 1000 x, to less than a thousandth of the total, while the
// loss is above a hundredth
// activation_blow_up: two consecutive records >= 10 x the first with a loss that rises as under
// divergence, or >= 100 x without
// activation_collapse: two consecutive records <= 1/100 of the first
// r is the gradient norm over 1 - exp(-loss). For the mean loss of a softmax |d loss / d logits| <=
// sqrt(2) (1 - exp(-loss)), so the gradient of a converging model falls with its loss and r stays
// constant; r falls when the logits no longer depend on the trainables. The learning rate is not
// used: a schedule that ends at 0 changes no gradient.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/train/norms/activation_norms.h"

namespace lft::train {

/// A series in natural logarithms: its start, and its last values.
struct NormTrend {
  std::vector<double> first, recent;  // up to 4; up to 16, oldest first
  void add(double log_value);
  bool ready() const;
  double at_first() const;
  double now() const;
  double scatter() const;  // of one value, without the trend
};

/// A taken step. `modules`: the L2 norm of the gradients of each module that the step's samples can
/// reach, including 0.
struct StepNorms {
  int64_t step = 0;
  double loss = 0, norm = 0;
  std::vector<LayerValue> modules;
};

struct NormWarning {
  std::string kind = {};  // as above; each once per run
  std::vector<std::string> modules =
      {};                      // largest change first; for the whole model those that changed most
  double now = 0, before = 0;  // the norm; medians, as above
  double loss = 0, loss_before = 0;  // now, and at the time of `before`
  std::string what = {}, next = {};  // two sentences: the finding and the remedy
};
/// Fields of an event; one line for the terminal.
io::Json warning_json(const NormWarning& warning);
std::string warning_line(const NormWarning& warning, int64_t step);

class NormWatch {
 public:
  std::vector<NormWarning> step(const StepNorms& step);
  /// Call it after step() of the same step.
  std::vector<NormWarning> activations(const std::vector<LayerValue>& rms);
  /// The complete state, for a checkpoint; {} is the initial state.
  io::Json state() const;
  void restore(const io::Json& state);

 private:
  struct Activation {
    double first = 0, last = 0, before_last = 0;  // 0: not yet
  };
  bool loss_rises() const;
  bool fell(const NormTrend& trend, double factor) const;
  void judge_gradient(const StepNorms& step, std::vector<NormWarning>& out);
  void judge_modules(std::vector<NormWarning>& out);
  std::vector<std::string> most_changed(bool upwards) const;
  bool once(const std::string& kind) { return warned_.insert(kind).second; }

  NormTrend loss_, norm_, ratio_;             // ratio_: r
  std::map<std::string, NormTrend> modules_;  // r of each
  std::map<std::string, Activation> activations_;
  double lowest_loss_ = 0, norm_at_lowest_ = 0;  // medians, in logarithms, once loss_ is ready
  bool has_lowest_ = false;
  int64_t below_tenth_ = 0;  // steps since r was a tenth of its first value
  std::set<std::string> warned_;
};

/// The modules of `optimizer` that a step can reach:
/// without an image only the language model's.
std::vector<LayerValue> module_grad_norms(const Optimizer& optimizer,
                                          const std::vector<double>& norms, bool has_image);

}  // namespace lft::train
