#include "models/llava/llava_names.h"

namespace lft::llava {
family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names = family::llava_layout_names();
  names.canonical.push_back({"image_newline", "image_newline", /*exact=*/true});
  names.canonical.push_back({"model.image_newline", "image_newline", /*exact=*/true});
  names.peft.push_back({"image_newline", "model.image_newline"});
  return names;
}

}  // namespace lft::llava
