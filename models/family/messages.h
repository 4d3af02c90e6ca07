// Text that several error messages about a batch share.
#pragma once

namespace lft::family {

/// Rows and prepared data were checked when they were read, so only batches from elsewhere fail
/// here.
constexpr char kOfThisModel[] = "encode the data with this model's tokenizer and processor";

}  // namespace lft::family
