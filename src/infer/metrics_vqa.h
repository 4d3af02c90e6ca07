// The normal form in which VQAv2 compares answers.
#pragma once
#include <string>

namespace lft::infer {

/// VQAv2's normal form.
std::string vqa_normal(const std::string& text);

}  // namespace lft::infer
