#include "models/ops/attention/tiled_attention.h"

#include <ATen/Functions.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/ops/attention/attention_loops.h"
#include "models/ops/core/parallel.h"

namespace lft::ops {
namespace {

using loops::Bf16;
using loops::kTile;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kScores = kTile * kTile;

/// The sizes of a product.
struct Sizes {
  int64_t m, n, k;
};

struct Heads {
  at::Tensor q, k, v;  // [batch, heads, positions, width]
  bool causal = false;
};

#if defined(__x86_64__) && defined(CPUBLAS_BRGEMM_BF16BF16F32)
bool has_fast_tiles() {
  static const bool fast =
      __builtin_cpu_supports("avx512bf16") && !at::native::cpublas::could_pack(at::kBFloat16);
  return fast && at::globalContext().userEnabledMkldnn();
}

/// c [m, n] (+)= a [m, k] b [k, n]. b has adjacent pairs of rows, see loops::pair_rows. All are
/// dense.
void multiply(const Sizes& size, const Bf16* a, const Bf16* b, float* c, bool adds) {
  const auto [m, n, k] = size;
  at::native::cpublas::brgemm(m, n, k, /*ld_a=*/k, /*ld_b=*/n, /*ld_c=*/n, adds, a, b, c,
                              /*is_vnni=*/true);
}
#else
bool has_fast_tiles() { return false; }
void multiply(const Sizes&, const Bf16*, const Bf16*, float*, bool) {}
#endif

int64_t tiles_of(int64_t positions) { return (positions + kTile - 1) / kTile; }

/// Thread-local, uninitialised memory.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(at::empty({count}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value))) {
  }
  T* operator+(int64_t offset) { return memory_.mutable_data_ptr<T>() + offset; }
  T* data() { return *this + 0; }

 private:
  at::Tensor memory_;
};

/// The rows of one head.
struct Rows {
  Bf16* data;
  int64_t stride, count, width;
};

Rows head_rows(const at::Tensor& x_bhte, int64_t head) {
  const int64_t b = head / x_bhte.size(1), h = head % x_bhte.size(1);
  return {static_cast<Bf16*>(x_bhte.data_ptr()) + b * x_bhte.stride(0) + h * x_bhte.stride(1),
          x_bhte.stride(2), x_bhte.size(2), x_bhte.size(3)};
}

/// The rows of tile `tile`, contiguous, padded with zeros.
void copy_tile(const Rows& x, int64_t tile, Bf16* to) {
  const int64_t first = tile * kTile, count = std::min(kTile, x.count - first);
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(to + r * x.width, x.data + (first + r) * x.stride,
                static_cast<size_t>(x.width) * sizeof(Bf16));
  }
  std::memset(static_cast<void*>(to + count * x.width), 0,
              static_cast<size_t>((kTile - count) * x.width) * sizeof(Bf16));
}

at::Tensor empty_heads(const at::Tensor& like_bhte) {
  return at::empty({like_bhte.size(0), like_bhte.size(2), like_bhte.size(1), like_bhte.size(3)},
                   like_bhte.options())
      .transpose(1, 2);
}

at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

float score_scale(int64_t width) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
}

/// lse_bht: log of the sum of exp of a query's scores, for the backward pass.
void forward_heads(const Heads& in, const at::Tensor& out, const at::Tensor& lse_bht) {
  const at::Tensor &q = in.q, &k = in.k, &v = in.v;
  const bool causal = in.causal;
  const int64_t width = q.size(3), keys = k.size(2), key_tiles = tiles_of(keys),
                tile_size = kTile * width;
  const float scale = score_scale(width);
  float* const lse = lse_bht.mutable_data_ptr<float>();
  parallel_for(q.size(0) * q.size(1), 1, [&](int64_t begin, int64_t end) {
    Scratch<Bf16> tile(tile_size), k_columns(key_tiles * tile_size), v_rows(key_tiles * tile_size),
        p(key_tiles * kScores);
    Scratch<float> s(key_tiles * kScores), sum(tile_size), inverse(kTile), lse_q(kTile);
    for (int64_t head = begin; head < end; ++head) {
      const Rows q_rows = head_rows(q, head), out_rows = head_rows(out, head);
      for (int64_t j = 0; j < key_tiles; ++j) {
        copy_tile(head_rows(k, head), j, tile.data());
        loops::pair_columns(tile.data(), k_columns + j * tile_size, width);
        copy_tile(head_rows(v, head), j, tile.data());
        loops::pair_rows(tile.data(), v_rows + j * tile_size, width);
      }
      for (int64_t i = 0; i < tiles_of(q_rows.count); ++i) {
        const int64_t first = i * kTile, count = std::min(kTile, q_rows.count - first),
                      seen = causal ? i + 1 : key_tiles;
        copy_tile(q_rows, i, tile.data());
        for (int64_t j = 0; j < seen; ++j)
          multiply({kTile, kTile, width}, tile.data(), k_columns + j * tile_size, s + j * kScores,
                   false);
        loops::attention_softmax(s.data(), p.data(), {keys, first, causal}, scale, inverse.data(),
                                 lse_q.data());
        for (int64_t j = 0; j < seen; ++j)
          multiply({kTile, width, kTile}, p + j * kScores, v_rows + j * tile_size, sum.data(),
                   j > 0);
        loops::store_rows(sum.data(), inverse.data(), out_rows.data + first * out_rows.stride,
                          count, width, out_rows.stride);
        std::memcpy(lse + head * q_rows.count + first, lse_q.data(),
                    static_cast<size_t>(count) * sizeof(float));
      }
    }
  });
}

/// The query data of one head for the backward pass, tile by tile.
struct QueryTiles {
  Scratch<Bf16> q_columns, q_rows, dy_columns, dy_rows;
  Scratch<float> lse, delta;

  QueryTiles(int64_t tiles, int64_t width)
      : q_columns(tiles * kTile * width),
        q_rows(tiles * kTile * width),
        dy_columns(tiles * kTile * width),
        dy_rows(tiles * kTile * width),
        lse(tiles * kTile),
        delta(tiles * kTile) {}

  void read(const Rows& q, const Rows& dy, const Rows& out, const float* lse_t) {
    const int64_t size = kTile * q.width;
    Scratch<Bf16> tile(size), out_tile(size);
    for (int64_t i = 0; i < tiles_of(q.count); ++i) {
      copy_tile(q, i, tile.data());
      loops::pair_columns(tile.data(), q_columns + i * size, q.width);
      loops::pair_rows(tile.data(), q_rows + i * size, q.width);
      copy_tile(dy, i, tile.data());
      loops::pair_columns(tile.data(), dy_columns + i * size, q.width);
      loops::pair_rows(tile.data(), dy_rows + i * size, q.width);
      copy_tile(out, i, out_tile.data());
      loops::attention_row_dots(tile.data(), out_tile.data(), delta + i * kTile, q.width);
    }
    std::memcpy(lse.data(), lse_t, static_cast<size_t>(q.count) * sizeof(float));
    std::fill(lse + q.count, lse + tiles_of(q.count) * kTile,
              0.0f);  // zero padding, with zero gradient
  }
};

struct Gradients {
  at::Tensor dq, dk, dv;
};

/// Scores and their gradients have a tile's keys as rows, so that they are the left operands of the
/// products for dk and dv.
Gradients backward_heads(const Heads& in, const at::Tensor& dy, const at::Tensor& out,
                         const at::Tensor& lse_bht) {
  const at::Tensor &q = in.q, &k = in.k, &v = in.v;
  const bool causal = in.causal;
  const Gradients result{empty_heads(q), empty_heads(k), empty_heads(v)};
  const int64_t width = q.size(3), keys = k.size(2), key_tiles = tiles_of(keys),
                query_tiles = tiles_of(q.size(2));
  const int64_t tile_size = kTile * width;
  const float scale = score_scale(width);
  const float* const lse = lse_bht.const_data_ptr<float>();
  parallel_for(q.size(0) * q.size(1), 1, [&](int64_t begin, int64_t end) {
    QueryTiles queries(query_tiles, width);
    Scratch<Bf16> k_tile(tile_size), k_transposed(tile_size), v_tile(tile_size), p(kScores),
        ds(kScores), ds_pairs(kScores);
    Scratch<float> s(kScores), dp(kScores), dk(tile_size), dv(tile_size),
        dq(query_tiles * tile_size);
    for (int64_t head = begin; head < end; ++head) {
      queries.read(head_rows(q, head), head_rows(dy, head), head_rows(out, head),
                   lse + head * q.size(2));
      for (int64_t j = 0; j < key_tiles; ++j) {
        copy_tile(head_rows(k, head), j, k_tile.data());
        copy_tile(head_rows(v, head), j, v_tile.data());
        loops::transpose_tile(k_tile.data(), k_transposed.data(), width);
        const int64_t from = causal ? j : 0, count = std::min(kTile, keys - j * kTile);
        for (int64_t i = from; i < query_tiles; ++i) {
          multiply({kTile, kTile, width}, k_tile.data(), queries.q_columns + i * tile_size,
                   s.data(), false);
          multiply({kTile, kTile, width}, v_tile.data(), queries.dy_columns + i * tile_size,
                   dp.data(), false);
          loops::attention_tile_backward(
              {s.data(), dp.data(), queries.lse + i * kTile, queries.delta + i * kTile}, count,
              /*diagonal=*/causal && i == j, scale, {p.data(), ds.data(), ds_pairs.data()});
          multiply({kTile, width, kTile}, p.data(), queries.dy_rows + i * tile_size, dv.data(),
                   i > from);
          multiply({kTile, width, kTile}, ds.data(), queries.q_rows + i * tile_size, dk.data(),
                   i > from);
          multiply({width, kTile, kTile}, k_transposed.data(), ds_pairs.data(), dq + i * tile_size,
                   j > 0);
        }
        const Rows dk_rows = head_rows(result.dk, head), dv_rows = head_rows(result.dv, head);
        loops::store_rows(dk.data(), nullptr, dk_rows.data + j * kTile * dk_rows.stride, count,
                          width, dk_rows.stride);
        loops::store_rows(dv.data(), nullptr, dv_rows.data + j * kTile * dv_rows.stride, count,
                          width, dv_rows.stride);
      }
      const Rows dq_rows = head_rows(result.dq, head);
      for (int64_t i = 0; i < query_tiles; ++i) {
        const int64_t count = std::min(kTile, dq_rows.count - i * kTile);
        loops::store_columns(dq + i * tile_size, dq_rows.data + i * kTile * dq_rows.stride, count,
                             width, dq_rows.stride);
      }
    }
  });
  return result;
}

struct TiledAttentionFunction : torch::autograd::Function<TiledAttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, bool causal) {
    const at::Tensor out = empty_heads(q), lse = at::empty({q.size(0), q.size(1), q.size(2)},
                                                           q.options().dtype(at::kFloat));
    forward_heads({q, k, v, causal}, out, lse);
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["causal"] = causal;
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const Gradients result =
        backward_heads({saved[0], saved[1], saved[2], ctx->saved_data["causal"].toBool()},
                       with_dense_rows(gradients[0]), saved[3], saved[4]);
    return {result.dq, result.dk, result.dv, at::Tensor()};
  }
};

}  // namespace

bool fits_tiles(const at::Tensor& q, const at::Tensor& k, bool causal) {
  const bool whole = q.numel() > 0 && k.numel() > 0 && (!causal || q.size(2) == k.size(2));
  return q.device().is_cpu() && q.scalar_type() == at::kBFloat16 && q.size(3) % 2 == 0 && whole &&
         has_fast_tiles();
}

at::Tensor tiled_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           bool causal) {
  const std::vector<c10::IValue> inputs = {q, k, v};
  at::RecordFunction record(at::RecordScope::FUNCTION);
  if (record.isActive())
    record.before("lft::scaled_dot_product_attention",
                  c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  const at::Tensor out = TiledAttentionFunction::apply(with_dense_rows(q), with_dense_rows(k),
                                                       with_dense_rows(v), causal);
  if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{out});
  return out;
}

}  // namespace lft::ops
