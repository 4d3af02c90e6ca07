#include "src/train/run/outputs.h"

#include "src/base/phase.h"
#include "src/hf/adapter/adapter_model.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/io/files.h"
#include "src/text/chat/named_form.h"
#include "src/text/chat/template_files.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/record/saved_steps.h"

namespace lft::train {
void save_outputs(Run& run) {
  const Phase phase("saving the trained weights", 0, "after the weights are saved");
  const recipe::Recipe& recipe = run.recipe;
  const data::EncodeOptions& encode = run.data.encode;
  hf::AdapterNotes notes{.base_path = io::absolute_path(recipe.model.path),
                         .base_fingerprint = hf::base_fingerprint(run.files.dir),
                         .input = recorded_settings(recipe),
                         .chat_template = encode.chat->jinja(),
                         .tokenizer = encode.tokenizer_parts};
  if (text::is_named_form(encode.chat->name()))
    notes.input.template_args.clear();
  else
    notes.input.template_name = hf::kChatTemplate;
  if (!text::uses_date(notes.chat_template)) notes.input.template_date.clear();
  const std::string product = product_of(recipe), path = recipe.output_dir + "/" + product;
  if (product == "model") {
    hf::save_model(path, run.model.model, run.files.dir, notes);
  } else if (product == "parts") {
    hf::save_parts(path, run.model.model, recipe.full, notes);
  } else {
    hf::save_adapter(path, run.model.model, run.model.lora, recipe.full, notes);
  }
}

void take_best(Run& run) {
  const checkpoint::Checkpoint best = load_best(run.recipe, run.best.step, run.id);
  copy_stored(best.trainables, named_targets(run.model.trainables), ErrorKind::kCheckpoint,
              run.recipe.output_dir + "/best");
  run.optimizer.refresh_copies(run.state.compute);
}

}  // namespace lft::train
