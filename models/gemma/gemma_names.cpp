#include "models/gemma/gemma_names.h"

namespace lft::gemma {

family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names = family::llava_layout_names();
  names.ignored = {".position_ids", "inv_freq"};
  return names;
}

}  // namespace lft::gemma
