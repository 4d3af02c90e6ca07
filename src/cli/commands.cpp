#include "src/cli/commands.h"

#include "src/train/machine/device.h"

namespace lft::cli {

void add_commands(Command& lft) {
  for (const auto add :
       {add_train,         add_launch,  add_sweep,   add_runs,   add_status,     add_check,
        add_validate,      add_preview, add_prepare, add_recipe, add_generate,   add_eval,
        add_score,         add_serve,   add_merge,   add_export, add_summary,    add_checkpoint,
        add_verify_resume, add_doctor,  add_debug,   add_replay, add_completions}) {
    add(lft);
  }
}

std::string version_text() {
  return "lft " + train::lft_version() + " (LibTorch " + train::torch_version() + ")";
}

}  // namespace lft::cli
