#include "src/data/rows/row_label.h"

#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_pairs.h"

namespace lft::data {
namespace {

constexpr char kExpected[] = "true for a desirable answer, false for an undesirable one";

}  // namespace

bool take_label(io::Json& row, const std::string& where) {
  if (!row.is_object())
    refuse(ErrorKind::kInput, "not a JSON object", where, describe(row), "a row with a \"label\"");
  if (is_pair(row))
    refuse(ErrorKind::kInput, "a pair of answers under objective.name: kto", where, key_names(row),
           "one answer and its \"label\"",
           "set objective.name: dpo, or write each answer as a row with its label");
  std::optional<bool> label;
  for (const char* key : {"label", "kto_tag"}) {
    if (!row.contains(key) || row[key].is_null()) continue;
    const std::optional<bool> value = truth_of(row[key]);
    if (!value)
      refuse(ErrorKind::kInput, std::string("\"") + key + "\" is neither true nor false", where,
             describe(row[key]), kExpected);
    if (label && label != value)
      refuse(ErrorKind::kInput, "\"label\" and \"kto_tag\" contradict each other", where,
             describe(row["label"]) + " and " + describe(row[key]), kExpected);
    label = value;
    row.erase(key);
  }
  if (label) return *label;
  refuse(ErrorKind::kInput, "a row without a label, under objective.name: kto", where,
         key_names(row), std::string("\"label\" or \"kto_tag\": ") + kExpected,
         "set objective.name: sft to train on answers without a label");
}

}  // namespace lft::data
