// Text that several error messages about a batch share.
#pragma once

namespace lft::family {

/// Rows and prepared data are checked when they are read, so only batches from other sources fail
/// here.
constexpr char kOfThisModel[] = "encode the data with this model's tokenizer and processor";

}  // namespace lft::family
