#include "src/hf/exports/exports.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/expert_slices.h"
#include "src/hf/exports/deltas.h"
#include "src/hf/exports/gguf_files.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::hf {
namespace {

void check_place(const ExportRequest& request) {
  for (const std::string& input : {request.adapter.path, request.model}) {
    if (!io::is_inside(request.out, input) && !io::is_inside(input, request.out)) continue;
    refuse(ErrorKind::kUsage, "the output would touch an input", request.out,
           "equal to, inside or above " + input, "a folder apart from both inputs");
  }
  if (io::path_exists(request.out) &&
      !(io::is_directory(request.out) && std::filesystem::is_empty(request.out)))
    refuse(ErrorKind::kUsage, "the output exists", request.out, {}, "a new folder");
}

/// An opened adapter with its tensors, and its base.
class Exporter {
 public:
  Exporter(const ExportRequest& request, const std::function<void()>& poll)
      : request_(request),
        poll_(poll),
        dir_(request.adapter),
        base_(ModelDir::open(request.model)) {
    check_adapter_base(dir_, base_);
    warn_of_missing_layers(dir_, base_.config);
    untie(dir_, base_);
    check_exportable();
    AdapterTensors read = read_adapter(dir_, base_.config);
    for (const auto& [name, copy] : read.base_copies) {
      const ModelDir::Place& place = base_.tensors.at(name);
      check_base_copy(copy, read_tensor(base_.files[place.file], base_.info(place)), name, dir_);
    }
    full_ = std::move(read.full);
    updates_ = {.lora = dir_.lora, .tensors = std::move(read.lora)};
  }

  std::vector<std::string> run() {
    if (request_.target == Target::kPeft) return write_peft();
    std::vector<std::string> lines;
    io::write_dir_atomic(request_.out,
                         [&](const std::string& fresh) { lines = write_served(fresh); });
    return lines;
  }

 private:
  void check_exportable() const {
    std::vector<std::string> found;
    bool model = false;
    for (const Finding& each : findings(request_.target, dir_, base_.config)) {
      if (each.blocks) found.push_back(each.what + " " + each.does);
      model = model || (each.blocks && each.of_model);
    }
    if (found.empty()) return;
    const std::string adapter = shell_word(dir_.path);
    refuse(ErrorKind::kInput, client_of(request_.target) + " reads no form of this adapter",
           dir_.path, join(found, "\n"),
           "an adapter that it reads, or that an export can rewrite for it",
           model ? "serve it with vLLM (lft export " + adapter +
                       " --target vllm --out DIR) or with lft serve"
                 : "lft merge --adapter " + adapter + " --out MODEL writes a whole model instead");
  }

  AdapterContents contents(const Updates& updates, const AdapterNotes& notes) const {
    return {.lora = updates.lora,
            .tensors = updates.tensors,
            .full = {},
            .modules_to_save = {},
            .notes = notes};
  }

  /// The notes for the base at `path`, whose files are in `at` now.
  AdapterNotes notes(const std::string& path, const std::string& at) const {
    AdapterNotes notes = dir_.notes;
    notes.base_path = path;
    notes.base_fingerprint = base_fingerprint(ModelDir::open(at));
    return notes;
  }

  std::vector<std::string> write_peft() const {
    AdapterContents whole = contents(updates_, notes(base_.path, base_.path));
    whole.full = full_;
    whole.modules_to_save = dir_.modules_to_save;
    write_adapter(request_.out, whole, base_.config, request_.dialect);
    const AdapterDir back = AdapterDir::open(request_.out);
    const AdapterTensors read = read_adapter(back, base_.config);
    for (const auto& [name, tensor] : full_) {
      if (!read.full.contains(name) || !read.full.at(name).equal(tensor))
        throw Error(ErrorKind::kInternal, "the export reads back otherwise: " + name);
    }
    return {adapter_line(request_.out, updates_,
                         compare_updates(updates_, {back.lora, read.lora}, request_.out))};
  }

  std::string adapter_line(const std::string& path, const Updates& written, double off) const {
    return "wrote " + path + " (LoRA rank " + std::to_string(rank_of(written)) + ", " +
           std::to_string(written.tensors.size()) + " modules); verified: " +
           (off == 0 ? "identical to the original"
                     : "updates within " + format_number(off, "%.2g") + " of the original's");
  }

  static int64_t rank_of(const Updates& updates) {
    return largest_rank(updates.lora, modules_of(updates));
  }

  /// The updates that remain an adapter, in the form that the server reads.
  Updates kept() const {
    Updates kept{.lora = updates_.lora, .tensors = {}};
    for (const auto& [module, tensors] : updates_.tensors) {
      if (stays_adapter(request_.target, module)) kept.tensors[module] = tensors;
    }
    std::erase_if(kept.lora.own,
                  [&](const auto& own) { return !kept.tensors.contains(own.first); });
    const bool own_scale = !lora::find_variant(kept.lora.variant).peft_flag.empty();
    const bool bakes = request_.target != Target::kVllm && (own_scale || !kept.lora.own.empty());
    if (bakes && !kept.tensors.empty()) kept = baked(kept);
    if (request_.target == Target::kSglang) fill_groups(&kept);
    return kept;
  }

  /// Adds the other modules of a group that the server requires, with zeros.
  void fill_groups(Updates* kept) const {
    for (const std::string& module : lacking_of_groups(modules_of(*kept))) {
      const auto place = base_.tensors.find(module + ".weight");
      if (place == base_.tensors.end())
        refuse(ErrorKind::kInput, "the base lacks a module that the server needs LoRA on",
               base_.path, module, "a decoder with q_proj, k_proj, v_proj, gate_proj and up_proj");
      const std::vector<int64_t>& shape_oi = base_.info(place->second).shape;
      const int64_t rank = kept->lora.of(module).rank;
      kept->tensors[module] = {{"lora_A", at::zeros({rank, shape_oi[1]})},
                               {"lora_B", at::zeros({shape_oi[0], rank})}};
    }
  }

  /// Merges parts that the served adapter cannot contain into `to`, a copy of the base.
  bool merge_rest(const std::string& to, std::vector<std::string>* lines) const {
    const auto rest = [&](const std::string& module) {
      return !stays_adapter(request_.target, module);
    };
    const auto merged = std::count_if(updates_.tensors.begin(), updates_.tensors.end(),
                                      [&](const auto& item) { return rest(item.first); });
    if (merged == 0 && full_.empty()) return false;
    const MergeReport report =
        merge_to_dir(base_.path, dir_.path, to, poll_,
                     {.takes = rest, .in_float32 = request_.target == Target::kGguf});
    const ModelDir written = ModelDir::open(to);
    for (const auto& [name, tensor] : full_) {
      const at::Tensor read = read_weight(written, name, tensor.sizes().vec());
      if (!read.equal(tensor.to(read.scalar_type())))
        throw Error(ErrorKind::kInternal, "the export reads back otherwise: " + name);
    }
    const auto experts = std::ranges::count_if(updates_.tensors, [&](const auto& item) {
      return rest(item.first) && base_.config.family->names.is_experts(item.first);
    });
    lines->push_back(
        "merged into the base: " + std::to_string(full_.size()) +
        " fully fine-tuned tensors, LoRA of " + std::to_string(merged) + " modules" +
        (experts > 0 ? ", of them " + std::to_string(experts) + " of experts, whose LoRA " +
                           client_of(request_.target) + " does not read"
                     : "") +
        (report.unties ? "; LM head and embedding, which the base ties, are two" : ""));
    return true;
  }

  std::vector<std::string> write_served(const std::string& fresh) const {
    std::vector<std::string> lines;
    const std::string out = io::absolute_path(request_.out);
    const bool merged = merge_rest(fresh + "/base", &lines);
    const Updates served = kept();
    if (request_.target == Target::kGguf) return write_gguf(fresh, merged, served, lines);
    const bool own = merged || link_base(fresh + "/base", &lines);
    const std::string base = own ? out + "/base" : base_.path;
    const std::string jinja = write_jinja(fresh + "/" + kChatTemplate);
    if (!served.tensors.empty()) {
      AdapterContents adapter = contents(served, notes(base, own ? fresh + "/base" : base_.path));
      adapter.folder = out + "/adapter";
      write_adapter(fresh + "/adapter", adapter, base_.config, Dialect::kEvery);
      const AdapterDir back = AdapterDir::open(fresh + "/adapter");
      const double off = compare_updates(
          original(served), {back.lora, read_adapter(back, base_.config).lora}, out + "/adapter");
      lines.push_back(adapter_line(request_.out + "/adapter", served, off));
    }
    lines.push_back("serve it: " + command(base, served) + jinja);
    return lines;
  }

  /// Servers fit images with the processor in the model's folder. If the training used another fit,
  /// `to` is the base with that processor and with links to the base's weights.
  bool link_base(const std::string& to, std::vector<std::string>* lines) const {
    const AdapterNotes trained = training_notes(dir_, base_);
    const io::Json file = image_processor_json(base_.path);
    if (trained.input.image_fit.empty() ||
        base_.config.family->processor_fitted(base_.config, file,
                                              family::image_rules(trained.input)) == file)
      return false;
    io::make_dirs(to);
    for (size_t i = 0; i < base_.files.size(); ++i) {
      const std::filesystem::path link = std::filesystem::path(to) / base_.file_names[i];
      io::make_dirs(link.parent_path().string());
      std::filesystem::create_symlink(io::absolute_path(base_.files[i].path()), link);
    }
    for (const char* name : {"config.json", "model.safetensors.index.json"}) {
      const std::string from = base_.path + "/" + name;
      if (io::path_exists(from)) io::write_file_atomic(to + "/" + name, io::read_file(from));
    }
    write_model_files(base_.path, to, base_.config, trained);
    lines->push_back("wrote " + request_.out +
                     "/base: the base with the image processor of the training; its weights are "
                     "links to " +
                     base_.path);
    return true;
  }

  /// The training's template, and the server options that it needs.
  std::string write_jinja(const std::string& file) const {
    const std::string jinja = jinja_of(training_notes(dir_, base_), base_.config);
    if (jinja.empty()) return "";
    io::write_file_atomic(file, jinja);
    return " --chat-template " + shell_word(request_.out + "/" + kChatTemplate);
  }

  /// Writes the files of the base, or of the merged `fresh`/base, which is deleted then.
  std::vector<std::string> write_gguf(const std::string& fresh, bool merged, const Updates& served,
                                      std::vector<std::string> lines) const {
    const ModelDir model = ModelDir::open(merged ? fresh + "/base" : base_.path);
    const GgufJob job{.model = model,
                      .name = std::filesystem::path(base_.path).filename().string(),
                      .notes = training_notes(dir_, base_),
                      .dtype = request_.dtype.value_or(gguf_type(base_.stored_dtype)),
                      .poll = poll_};
    const int64_t kept = write_gguf_model(job, fresh);
    lines.push_back("wrote " + request_.out + "/model.gguf, " + request_.out + "/mmproj.gguf");
    if (kept > 0)
      lines.push_back("float16 cannot represent the values of " + std::to_string(kept) +
                      " matrices: they keep the base's type");
    std::string more = gguf_image_options(job);
    if (!served.tensors.empty()) {
      write_gguf_lora(model, served, fresh + "/lora.gguf");
      const double off = compare_updates(original(served),
                                         read_gguf_lora(model, fresh + "/lora.gguf"), request_.out);
      lines.push_back(adapter_line(request_.out + "/lora.gguf", served, off));
      more += " --lora " + shell_word(request_.out + "/lora.gguf");
    }
    io::remove_tree(fresh + "/base");
    lines.push_back("serve it: llama-server -m " + shell_word(request_.out + "/model.gguf") +
                    " --mmproj " + shell_word(request_.out + "/mmproj.gguf") + more);
    return lines;
  }

  /// The read updates of the served modules; zeros if there are none.
  Updates original(const Updates& served) const {
    Updates read{.lora = updates_.lora, .tensors = {}};
    for (const auto& [module, tensors] : served.tensors) {
      const auto at = updates_.tensors.find(module);
      read.tensors[module] = at == updates_.tensors.end() ? zeroed(tensors) : at->second;
    }
    return read;
  }
  static lora::NamedTensors zeroed(const lora::NamedTensors& tensors) {
    lora::NamedTensors zeros;
    for (const auto& [name, tensor] : tensors) zeros[name] = at::zeros_like(tensor);
    return zeros;
  }

  std::string command(const std::string& base, const Updates& served) const {
    const bool vllm = request_.target == Target::kVllm;
    const std::string start =
        (vllm ? "vllm serve " : "python -m sglang.launch_server --model-path ") + shell_word(base);
    if (served.tensors.empty()) return start;
    const bool tower = std::ranges::any_of(
        served.tensors, [](const auto& item) { return lora::scope_of(item.first) != "llm"; });
    return start + (vllm ? " --enable-lora --lora-modules " : " --enable-lora --lora-paths ") +
           shell_word("adapter=" + request_.out + "/adapter") + " --max-lora-rank " +
           std::to_string(vllm ? served_rank(rank_of(served)) : rank_of(served)) +
           (tower ? " --enable-tower-connector-lora" : "");
  }

  const ExportRequest& request_;
  const std::function<void()>& poll_;
  const AdapterDir& dir_;
  ModelDir base_;  // after untie()
  std::map<std::string, at::Tensor> full_;
  Updates updates_;
};

}  // namespace

std::vector<std::string> export_adapter(const ExportRequest& request,
                                        const std::function<void()>& poll) {
  check_place(request);
  return Exporter(request, poll).run();
}

}  // namespace lft::hf
