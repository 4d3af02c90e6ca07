// cuDNN's attention over packed sequences, through its graph API: plans are built once per shape
// and cached, unlike in LibTorch's cuDNN call.
#include "kernels/cudnn_module/module.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace lft {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Ids of the tensors in a plan.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kGradO,
  kGradQ,
  kGradK,
  kGradV,
  kQOffsets,
  kKvOffsets,
  kLengths
};

/// A graph with the common properties of its tensors.
class GraphBuilder {
 public:
  explicit GraphBuilder(const AttentionShape& shape) : shape_(shape) {
    const fe::DataType_t type =
        shape.type == FloatType::kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
    graph->set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    q_offsets_ = numbers("q_offsets", kQOffsets, shape.sequences + 1);
    kv_offsets_ = numbers("kv_offsets", kKvOffsets, shape.sequences + 1);
    lengths = numbers("lengths", kLengths, shape.sequences);
  }

  /// An input [t, heads, e] of packed sequences.
  TensorPtr packed(const char* name, Uid uid, bool of_q) {
    const TensorPtr tensor = graph->tensor(fe::graph::Tensor_attributes().set_name(name));
    lay_out(tensor, uid, of_q);
    return tensor;
  }
  void packed_output(const TensorPtr& tensor, Uid uid, bool of_q) {
    tensor->set_output(true);
    lay_out(tensor, uid, of_q);
  }
  std::vector<int64_t> stats_dim() const {
    return {shape_.sequences, shape_.heads, shape_.longest, 1};
  }
  std::vector<int64_t> stats_stride() const {
    return {shape_.heads * shape_.longest, shape_.longest, 1, 1};
  }

  const std::shared_ptr<fe::graph::Graph> graph = std::make_shared<fe::graph::Graph>();
  TensorPtr lengths;

 private:
  void lay_out(const TensorPtr& tensor, Uid uid, bool of_q) {
    const int64_t heads = of_q ? shape_.heads : shape_.groups, row = heads * shape_.size;
    tensor->set_uid(uid)
        .set_dim({shape_.sequences, heads, shape_.longest, shape_.size})
        .set_stride({shape_.longest * row, shape_.size, row, 1})
        .set_ragged_offset(of_q ? q_offsets_ : kv_offsets_);
  }
  TensorPtr numbers(const char* name, Uid uid, int64_t count) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }

  const AttentionShape& shape_;
  TensorPtr q_offsets_, kv_offsets_;
};

float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.size)));
}

std::shared_ptr<fe::graph::Graph> forward_graph(const AttentionShape& shape) {
  GraphBuilder builder(shape);
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(scale_of(shape))
                     .set_padding_mask(true)
                     .set_seq_len_q(builder.lengths)
                     .set_seq_len_kv(builder.lengths);
  if (shape.causal) options.set_causal_mask(true);
  const TensorPtr q = builder.packed("q", kQ, true), k = builder.packed("k", kK, false),
                  v = builder.packed("v", kV, false);
  const auto [o, stats] = builder.graph->sdpa(q, k, v, options);
  builder.packed_output(o, kO, true);
  stats->set_output(true)
      .set_uid(kStats)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim(builder.stats_dim())
      .set_stride(builder.stats_stride());
  return builder.graph;
}

std::shared_ptr<fe::graph::Graph> backward_graph(const AttentionShape& shape) {
  GraphBuilder builder(shape);
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention gradients")
                     .set_attn_scale(scale_of(shape))
                     .set_padding_mask(true)
                     .set_seq_len_q(builder.lengths)
                     .set_seq_len_kv(builder.lengths)
                     .set_max_total_seq_len_q(shape.tokens)
                     .set_max_total_seq_len_kv(shape.tokens);
  if (shape.causal) options.set_causal_mask(true);
  const TensorPtr stats = builder.graph->tensor(fe::graph::Tensor_attributes()
                                                    .set_name("stats")
                                                    .set_uid(kStats)
                                                    .set_data_type(fe::DataType_t::FLOAT)
                                                    .set_dim(builder.stats_dim())
                                                    .set_stride(builder.stats_stride()));
  const TensorPtr q = builder.packed("q", kQ, true), k = builder.packed("k", kK, false),
                  v = builder.packed("v", kV, false), o = builder.packed("o", kO, true),
                  grad_o = builder.packed("grad_o", kGradO, true);
  const auto [grad_q, grad_k, grad_v] =
      builder.graph->sdpa_backward(q, k, v, o, grad_o, stats, options);
  builder.packed_output(grad_q, kGradQ, true);
  builder.packed_output(grad_k, kGradK, false);
  builder.packed_output(grad_v, kGradV, false);
  return builder.graph;
}

/// One per thread and device: two threads cannot use one at the same time. Never destroyed, since
/// CUDA may be shut down before.
cudnnHandle_t handle_of(int device) {
  thread_local std::map<int, cudnnHandle_t> handles;
  cudnnHandle_t& handle = handles[device];
  if (handle == nullptr && cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  return handle;
}

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;  // null: no plan
  int64_t workspace = -1;
};

class Attention final : public CudnnAttention {
 public:
  int64_t workspace(const AttentionShape& shape, bool backward) override {
    return plan(shape, backward).workspace;
  }

  const char* run(const AttentionShape& shape, bool backward, const AttentionCall& call,
                  Stream stream) override {
    thread_local std::string why;
    const Plan& plan = this->plan(shape, backward);
    const cudnnHandle_t handle = handle_of(current_device());
    if (!plan.graph || handle == nullptr) return "cuDNN has no plan for this shape";
    if (cudnnSetStream(handle, stream) != CUDNN_STATUS_SUCCESS) return "cudnnSetStream failed";
    const auto writable = [](const void* p) { return const_cast<void*>(p); };
    std::unordered_map<int64_t, void*> places = {{kQ, writable(call.q)},
                                                 {kK, writable(call.k)},
                                                 {kV, writable(call.v)},
                                                 {kO, call.o},
                                                 {kStats, call.stats},
                                                 {kQOffsets, writable(call.q_offsets)},
                                                 {kKvOffsets, writable(call.kv_offsets)},
                                                 {kLengths, writable(call.lengths)}};
    if (backward) {
      places[kGradO] = writable(call.grad_o);
      places[kGradQ] = call.grad_q, places[kGradK] = call.grad_k, places[kGradV] = call.grad_v;
    }
    fe::error_t status = plan.graph->execute(handle, places, call.workspace);
    if (status.is_good()) return nullptr;
    why = status.get_message();
    return why.c_str();
  }

 private:
  /// Maximum number of cached shapes, above that of any run; further shapes get no plan.
  static constexpr size_t kMostPlans = 128;
  using Key = std::tuple<int, bool, AttentionShape>;  // device, backward

  static int current_device() {
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess ? device : 0;
  }
  static bool is_faster_here(int device) {
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  }

  const Plan& plan(const AttentionShape& shape, bool backward) {
    static const Plan none;
    const int device = current_device();
    const Key key{device, backward, shape};
    const std::lock_guard lock(mutex_);
    if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
    if (plans_.size() == kMostPlans) return none;
    Plan& plan = plans_[key];
    if (!is_faster_here(device)) return plan;
    const cudnnHandle_t handle = handle_of(device);
    if (handle == nullptr) return plan;
    const auto graph = backward ? backward_graph(shape) : forward_graph(shape);
    if (graph->build(handle, {fe::HeurMode_t::A}).is_bad()) return plan;
    int64_t bytes = 0;
    if (graph->get_workspace_size(bytes).is_bad()) return plan;
    plan = {graph, bytes};
    return plan;
  }

  std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

}  // namespace
}  // namespace lft

/// The interface to cuDNN for this process.
extern "C" __attribute__((visibility("default"))) lft::CudnnAttention* lft_open_cudnn_attention() {
  static auto* const attention = new lft::Attention;  // never destroyed: CUDA may be gone by then
  return attention;
}
