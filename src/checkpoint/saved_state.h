// What state.json of a checkpoint may say. Its fields are the trainer's; here they are checked once
// for all that read them.
#pragma once
#include <cstdint>
#include <string>

#include "src/io/json.h"

namespace lft::checkpoint {

/// kCheckpoint, naming the field, where one that is there has another type than the trainer's or a
/// value that none ever has, or where the state is of another step than `step`. Who needs a field
/// says itself that it is missing.
void check_saved_state(const io::Json& state, int64_t step, const std::string& file);

}  // namespace lft::checkpoint
