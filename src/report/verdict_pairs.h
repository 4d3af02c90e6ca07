// What the metrics of a run on preference pairs say about it; verdict.h has the rules.
#pragma once
#include <string>
#include <utility>

#include "src/report/read_metrics.h"
#include "src/report/verdict.h"

namespace lft::report {

/// Whether the steps have the figures of an objective of preferences.
bool of_preferences(const Metrics& metrics);

/// "the chosen answer has the higher reward in 71% of the held-out pairs (83% in training), the
/// reward margin is 0.41"; without an evaluation of the training pairs alone; of rows of KTO only
/// the margin. Empty before the first step.
std::string preference_course(const Metrics& metrics);

/// "reward accuracy" and "71% of 500 held-out pairs, margin 0.41", or of the last tenth of the
/// training steps; of rows of KTO "reward margin" and its value.
std::pair<std::string, std::string> preferred_fact(const Metrics& metrics);

/// Of at least kFewestSteps steps; its sentence has neither a capital nor a full stop.
Verdict judge_preferences(const Metrics& metrics, const RunEnd& end);

}  // namespace lft::report
