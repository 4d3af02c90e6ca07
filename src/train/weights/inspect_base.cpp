#include "src/train/weights/inspect_base.h"

#include <ATen/core/grad_mode.h>

#include "src/base/errors.h"
#include "src/train/weights/base_fit.h"
#include "src/train/weights/base_head.h"
#include "src/train/weights/base_order.h"

namespace lft::train {
BaseReport inspect_base(const std::string& path) {
  const at::NoGradGuard no_grad;
  const hf::ModelDir dir = hf::ModelDir::open(path);
  const StatsByName stats = used_tensor_stats(dir, 0);
  BaseReport report{.path = dir.path,
                    .tensors = std::ssize(stats),
                    .values = 0,
                    .suspicions = odd_weights(dir.config, stats),
                    .untrained = looks_untrained(dir.config, stats),
                    .not_judged = {}};
  for (const auto& [name, one] : stats) report.values += one.rows * one.columns;
  for (const TowerNames& tower : towers_of(dir.config)) {
    add_unless_named(report.suspicions, odd_fits(tower, stats));
    const LayerOrder order = layer_order(tower, dir, stats);
    add_unless_named(report.suspicions, order.suspicions);
    if (!order.not_judged.empty()) report.not_judged.push_back(order.not_judged);
  }
  add_unless_named(report.suspicions,
                   odd_projector(dir.config.family->layout(dir.config).projector, stats));
  const HeadFit head = head_fit(dir);
  add_unless_named(report.suspicions, head.suspicions);
  if (!head.not_judged.empty()) report.not_judged.push_back(head.not_judged);
  sort_suspicions(report.suspicions);
  return report;
}

std::vector<std::string> base_lines(const BaseReport& report) {
  std::vector<std::string> lines;
  for (const Suspicion& one : report.suspicions) lines.push_back(suspicion_line(one));
  const std::string looked = std::to_string(report.values) + " values in " +
                             std::to_string(report.tensors) + " tensors of " +
                             escape_text(report.path, 1000);
  for (const std::string& one : report.not_judged) lines.push_back("not judged: " + one);
  const size_t count = report.suspicions.size();
  std::string verdict =
      count > 0 ? std::to_string(count) + " suspicions, the oddest first: " : "nothing looks odd: ";
  if (report.untrained) {
    verdict = (count > 0 ? std::to_string(count) + " suspicions, and the" : std::string("the")) +
              " model looks untrained: nearly all of its matrices are random values: ";
  } else if (count == 0 && !report.not_judged.empty()) {
    verdict = "nothing looks odd in the checks that were possible: ";
  }
  lines.push_back(verdict + looked);
  return lines;
}

}  // namespace lft::train
