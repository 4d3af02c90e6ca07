// Validates a checkpoint's state.json. The fields are defined by the trainer and checked here for
// all readers.
#pragma once
#include <cstdint>
#include <string>

#include "src/io/json.h"

namespace lft::checkpoint {

/// kCheckpoint with the field's name if an existing one has another type than the trainer's or an
/// impossible value, or if the state is of another step than `step`. Missing fields are reported by
/// their readers.
void check_saved_state(const io::Json& state, int64_t step, const std::string& file);

}  // namespace lft::checkpoint
