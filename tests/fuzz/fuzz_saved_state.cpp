// state.json of a checkpoint of step 3.
#include "src/checkpoint/saved_state.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool saved_state(std::string_view bytes) {
  io::Json state;
  return reads(ErrorKind::kInput, [&] { state = io::parse_json(bytes, "state.json"); }) &&
         reads(ErrorKind::kCheckpoint,
               [&] { checkpoint::check_saved_state(state, 3, "state.json"); });
}

}  // namespace lft::fuzz
