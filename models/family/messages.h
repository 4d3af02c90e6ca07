// What several refusals of a batch say.
#pragma once

namespace lft::family {

/// Rows and prepared data are checked when they are read: only other batches get here.
constexpr char kOfThisModel[] = "encode the data with this model's tokenizer and processor";

}  // namespace lft::family
