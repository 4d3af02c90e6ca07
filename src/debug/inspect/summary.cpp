#include "src/debug/inspect/summary.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/objective/forward_loss.h"
#include "models/ops/core/precision.h"
#include "src/data/batch.h"
#include "src/debug/inspect/summary_ops.h"
#include "src/hf/weights_load.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"

namespace lft::debug {
namespace {

constexpr int64_t kTextTokens = 24;

std::string shapes(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors)
    text += (text.empty() ? "" : " ") + c10::str(tensor.sizes());
  return text.empty() ? "-" : text;
}

/// "Linear" for "lft::LinearImpl", with its adapter.
std::string type_name(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t at = name.rfind("::"); at != std::string::npos) name = name.substr(at + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  const auto* linear = dynamic_cast<const layers::LinearImpl*>(&module);
  return linear != nullptr && linear->adapter() != nullptr ? name + "+" + linear->adapter()->name()
                                                           : name;
}

struct Parameter {
  std::string name, dtype;
  int64_t count = 0, bytes = 0;
  bool trained = false;
};

class CallTable : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module& module,
              const std::vector<at::Tensor>& inputs) override {
    if (!open_.empty()) rows[open_.back()].leaf = false;
    open_.push_back(index_.try_emplace(path, rows.size()).first->second);
    if (open_.back() == rows.size())
      rows.push_back(
          {.path = path, .type = type_name(module), .input = shapes(inputs), .output = "-"});
  }
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    SummaryRow& row = rows[open_.back()];
    open_.pop_back();
    row.output = shapes(outputs);
    row.output_bytes = 0;
    for (const at::Tensor& output : outputs)
      row.output_bytes += static_cast<int64_t>(output.nbytes());
  }

  /// A tensor counts for the innermost called module that contains it; tensors that no output
  /// depends on have separate rows.
  void count(const Parameter& parameter, const std::vector<std::string>& unused) {
    const auto within = [&](const std::string& module) {
      return parameter.name.starts_with(module + ".");
    };
    const auto found = std::ranges::find_if(unused, within);
    SummaryRow& row =
        found == unused.end() ? owner_of(parameter.name) : row_of(*found, "(not used)");
    row.parameters += parameter.count;
    row.parameter_bytes += parameter.bytes;
    if (parameter.trained) row.trainable += parameter.count;
    if (row.dtype == "-") {
      row.dtype = parameter.dtype;
    } else if (row.dtype.find(parameter.dtype) == std::string::npos) {
      row.dtype += "," + parameter.dtype;
    }
  }

  void count_products(const std::map<std::string, int64_t>& by_module) {
    for (const auto& [path, size] : by_module)
      row_of(path, "(outside modules)").multiply_adds += size;
  }

  std::vector<SummaryRow> rows;

 private:
  SummaryRow& row_of(const std::string& path, const std::string& type) {
    const auto [at, fresh] = index_.try_emplace(path, rows.size());
    if (fresh) rows.push_back({.path = path, .type = type, .input = "-", .output = "-"});
    return rows[at->second];
  }

  SummaryRow& owner_of(const std::string& tensor) {
    const std::string module = tensor.substr(0, tensor.rfind('.'));
    for (size_t dot = tensor.rfind('.'); dot != std::string::npos && dot > 0;
         dot = tensor.rfind('.', dot - 1)) {
      const auto at = index_.find(tensor.substr(0, dot));
      if (at == index_.end()) continue;
      const int64_t products = rows[at->second].multiply_adds;
      if (dot == module.size() || products == 0 || rows[at->second].leaf) return rows[at->second];
      // The calling module computed the products with it, chunk by chunk: the head, if there is a
      // loss and no logits.
      rows[at->second].multiply_adds = 0;
      SummaryRow& row = row_of(module, "(in chunks)");
      row.multiply_adds = products;
      return row;
    }
    return row_of(tensor, module == tensor ? "Parameter" : "(not run)");
  }

  std::map<std::string, size_t> index_;
  std::vector<size_t> open_;  // rows of the calls that are running
};

/// Rows with an image, if there is space for one, and text; everything after the image, or the
/// first token, is supervised.
family::Batch made_up_batch(const family::ModelConfig& config, int64_t batch, int64_t tokens,
                            at::TensorOptions meta) {
  const family::ImagePlan plan = family::reference_image_plan(config);
  const int64_t image = plan.positions(), other = config.image_token == 0 ? 1 : 0;
  const bool has_image = tokens >= image + 2;
  family::Batch out;
  out.input_ids_bt = at::full({batch, tokens}, other, at::kLong);
  out.labels_bt = at::full({batch, tokens}, other, at::kLong);
  out.labels_bt.narrow(1, 0, has_image ? image + 1 : 1).fill_(-100);
  out.lengths_b = at::full({batch}, tokens, at::kLong);
  if (!has_image) return out;
  out.input_ids_bt.narrow(1, 1, image).fill_(config.image_token);
  out.images.assign(static_cast<size_t>(batch), plan.shape);
  out.pixels = at::empty({batch * plan.shape.tiles, 3, plan.shape.height, plan.shape.width}, meta);
  return out;
}

family::Batch asked_batch(const family::ModelConfig& config, const SummaryOptions& options,
                          int64_t rows, int64_t tokens) {
  const int64_t most = config.text.max_positions;
  if (options.batch < 0 || options.tokens < 0 || options.tokens > most || options.tokens == 1) {
    refuse(ErrorKind::kUsage, "no such batch", "--batch, --tokens",
           std::to_string(options.batch) + " rows of " + std::to_string(options.tokens) + " tokens",
           "1 row or more, 2 to " + std::to_string(most) + " tokens (the model's positions)",
           "leave the option out for a size that fits");
  }
  return made_up_batch(config, options.batch > 0 ? options.batch : rows,
                       options.tokens > 0 ? options.tokens : tokens,
                       at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
}

std::string plural(int64_t count, const std::string& name) {
  return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
}

/// Runs the batch on the meta device and counts. With `loss` it runs like a training step, else to
/// all logits.
Summary summarize(family::Model& model, const family::Batch& batch, bool loss,
                  at::ScalarType compute, const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  CallTable table;
  {
    const ObserveCalls observe(table);
    const ProductCount products;
    if (loss) {
      objective::forward_logprobs({.compute = compute}, model, batch);
    } else {
      const ops::ComputeDtypeGuard dtype(compute);
      model->all_logits(batch);
    }
    table.count_products(products.by_module());
  }
  const std::vector<std::string> unused =
      model->config.family->vision(model->config).unused_modules;
  Summary summary;
  for (const Parameter& parameter : parameters) {
    table.count(parameter, unused);
    summary.towers[parameter.name.substr(0, parameter.name.find('.'))] += parameter.count;
  }
  const auto images = static_cast<int64_t>(family::image_shapes(batch).size());
  summary.batch = plural(batch.input_ids_bt.size(0), "row") + " of " +
                  plural(batch.input_ids_bt.size(1), "token") + ", " +
                  (images == 0 ? "no image" : plural(images, "image"));
  summary.input_bytes = static_cast<int64_t>(batch.input_ids_bt.nbytes()) +
                        (images == 0 ? 0 : static_cast<int64_t>(batch.pixels.nbytes()));
  for (const SummaryRow& row : table.rows) {
    summary.parameters += row.parameters;
    summary.trainable += row.trainable;
    summary.multiply_adds += row.multiply_adds;
    summary.parameter_bytes += row.parameter_bytes;
    if (row.leaf) summary.activation_bytes += 2 * row.output_bytes;
  }
  summary.rows = std::move(table.rows);
  return summary;
}

}  // namespace

Summary summarize_model(const hf::ModelDir& dir, const SummaryOptions& options) {
  const family::ModelConfig& config = dir.config;
  family::Model model = config.family->build(config, hf::to_scalar_type(dir.stored_dtype),
                                             at::kMeta, ops::BaseStorage::kDense);
  std::vector<Parameter> parameters;
  for (const auto& [name, place] : dir.tensors) {
    const io::TensorInfo& info = dir.info(place);
    parameters.push_back({name, io::dtype_name(info.dtype), static_cast<int64_t>(info.numel()),
                          static_cast<int64_t>(info.bytes), false});
  }
  if (dir.tensors.empty()) {  // only config.json
    const int64_t bytes =
        static_cast<int64_t>(c10::elementSize(hf::to_scalar_type(dir.stored_dtype)));
    for (const family::TensorSpec& spec : config.family->layout(config).tensors) {
      const int64_t numel = c10::multiply_integers(spec.shape);
      parameters.push_back(
          {spec.name, io::dtype_name(dir.stored_dtype), numel, numel * bytes, false});
    }
  }
  const int64_t image = family::reference_image_plan(config).positions(),
                left = config.text.max_positions - image;
  const int64_t tokens = left >= 2 ? image + std::min(kTextTokens, left)
                                   : std::min(kTextTokens, config.text.max_positions);
  return summarize(model, asked_batch(config, options, 1, tokens), /*loss=*/false, at::kFloat,
                   parameters);
}

Summary summarize_run(const recipe::Recipe& recipe, const SummaryOptions& options) {
  const train::RunInputs inputs = train::open_inputs(recipe, /*resume=*/true);
  train::RunModel run = train::run_shapes(inputs);
  std::vector<Parameter> parameters;
  for (const auto& item : run.model->named_parameters()) {
    const at::Tensor& tensor = item.value();
    const bool trained = std::ranges::any_of(
        run.trainables, [&](const auto& trainable) { return trainable.tensor.is_same(tensor); });
    parameters.push_back({item.key(), io::dtype_name(hf::to_dtype(tensor.scalar_type())),
                          tensor.numel(), static_cast<int64_t>(tensor.nbytes()), trained});
  }
  family::Batch batch;
  const data::StepSamples first = train::start_loader(inputs, 0)->next();
  int64_t widest = first.micro.empty() ? inputs.data.encode.max_tokens : 0;
  if (!first.micro.empty()) {
    const std::vector<data::Sample>& samples = first.micro.front();
    data::BatchLayout layout = train::batch_layout(inputs);
    layout.device = at::kCPU;
    layout.fill_up = 0;
    batch = data::make_batch(layout, samples);
    for (const data::Sample& sample : samples)
      widest = std::max(widest, static_cast<int64_t>(sample.input_ids.size()));
  }
  if (options.batch != 0 || options.tokens != 0 || first.micro.empty()) {
    batch = asked_batch(inputs.config, options, recipe.train.batch_size, widest);
  }
  return summarize(run.model, batch, /*loss=*/(batch.labels_bt != -100).any().item<bool>(),
                   inputs.precision.compute, parameters);
}

}  // namespace lft::debug
