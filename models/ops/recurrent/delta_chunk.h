// A chunk of the gated delta rule on a CPU, for delta_cpu.cpp and delta_cpu_backward.cpp alone: its
// matrices, and the steps that both passes share.
#pragma once
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#include "models/ops/recurrent/delta_loops.h"
#include "models/ops/recurrent/gated_delta.h"

namespace lft::ops::delta {

using loops::kDeltaChunk;
using loops::Matrix;
using loops::Product;
using loops::TensorRows;

template <class X>
using Wide = std::conditional_t<std::is_same_v<X, double>, double, float>;

constexpr int64_t kBand = 16;  // rows of a product with a triangular matrix

inline int64_t padded(int64_t width) {
  return (width + loops::kColumnGroup - 1) / loops::kColumnGroup * loops::kColumnGroup;
}
/// The distance of rows: an odd number of cache lines, so that columns spread over the cache.
inline int64_t stride_of(int64_t width) {
  const int64_t groups = padded(width) / loops::kColumnGroup;
  return (groups + (groups % 2 == 0 ? 1 : 0)) * loops::kColumnGroup;
}

struct DeltaSizes {
  int64_t d, e, group;  // group: value heads of a key head
  int64_t d_stride, e_stride;
  int64_t rows;  // of the longest chunk

  DeltaSizes(const DeltaInput& in, const PackedSequences& sequences)
      : d(in.q_thd.size(2)),
        e(in.v_tne.size(2)),
        group(in.v_tne.size(1) / in.q_thd.size(1)),
        d_stride(stride_of(d)),
        e_stride(stride_of(e)),
        rows(std::min(kDeltaChunk, sequences.longest())) {}
  int64_t state() const { return padded(d) * e_stride; }
  int64_t scores() const { return rows * kDeltaChunk; }  // elements of a matrix of scores
};

/// Thread-local memory, handed out in parts.
template <class W>
class Workspace {
 public:
  explicit Workspace(int64_t count)
      : memory_(at::empty({count}, at::TensorOptions().dtype(c10::CppTypeToScalarType<W>::value))),
        next_(memory_.template mutable_data_ptr<W>()) {}
  W* take(int64_t count) {
    W* const part = next_;
    next_ += count;
    return part;
  }

 private:
  at::Tensor memory_;
  W* next_;
};

/// A chunk of one key head.
template <class W>
struct KeyChunk {
  W* kq;         // [2 count, d]: the keys, then the queries times their scale
  W* k_columns;  // [d, count]
  W *kk, *qk;    // [count, count], lower triangles
  W* inverses;   // [2 count]: 1 / length

  static int64_t size(const DeltaSizes& of) {
    return 2 * of.rows * of.d_stride + padded(of.d) * kDeltaChunk + 2 * of.scores() +
           2 * kDeltaChunk;
  }
  KeyChunk(Workspace<W>& from, const DeltaSizes& of)
      : kq(from.take(2 * of.rows * of.d_stride)),
        k_columns(from.take(padded(of.d) * kDeltaChunk)),
        kk(from.take(of.scores())),
        qk(from.take(of.scores())),
        inverses(from.take(2 * kDeltaChunk)) {}
};

/// A chunk of one value head.
template <class W>
struct ValueChunk {
  W* reads;          // [2 count, e]: what keys and queries read from the state; later changed
  W *v, *u;          // [count, e]: u is what is written, as in the paper
  W* kd;             // [count, d]: keys, decayed to the chunk's end
  W *decay, *n, *p;  // loops::ChunkScores
  W *sums, *beta, *from_start, *to_end;  // from_start = exp(sums)
  W total = 0;                           // decay of the whole chunk

  static int64_t size(const DeltaSizes& of) {
    return 4 * of.rows * of.e_stride + of.rows * of.d_stride + 3 * of.scores() + 4 * kDeltaChunk;
  }
  ValueChunk(Workspace<W>& from, const DeltaSizes& of)
      : reads(from.take(2 * of.rows * of.e_stride)),
        v(from.take(of.rows * of.e_stride)),
        u(from.take(of.rows * of.e_stride)),
        kd(from.take(of.rows * of.d_stride)),
        decay(from.take(of.scores())),
        n(from.take(of.scores())),
        p(from.take(of.scores())),
        sums(from.take(kDeltaChunk)),
        beta(from.take(kDeltaChunk)),
        from_start(from.take(kDeltaChunk)),
        to_end(from.take(kDeltaChunk)) {}
};

/// c = keep c + (the lower triangle a) b, in bands of rows. kUp: a^T instead of a.
template <bool kUp, class W>
void multiply_triangle(int64_t count, const W* a, const W* b, int64_t b_cols, int64_t b_stride,
                       W* c, W keep) {
  for (int64_t row = 0; row < count; row += kBand) {
    const int64_t rows = std::min(kBand, count - row), from = kUp ? row : 0;
    loops::multiply(Product<W>{.m = rows,
                               .n = b_cols,
                               .k = kUp ? count - row : row + rows,
                               .a = kUp ? a + row * kDeltaChunk + row : a + row * kDeltaChunk,
                               .a_row = kUp ? 1 : kDeltaChunk,
                               .a_col = kUp ? kDeltaChunk : 1,
                               .b = b + from * b_stride,
                               .b_row = b_stride,
                               .c = c + row * b_stride,
                               .c_row = b_stride,
                               .keep = keep});
  }
}

/// The lower triangle of a b in rows of kDeltaChunk, and something above it; b [k, count].
template <class W>
void multiply_to_triangle(int64_t count, int64_t k, const W* a, int64_t a_stride, const W* b,
                          W* c) {
  for (int64_t row = 0; row < count; row += 2 * kBand) {
    const int64_t rows = std::min(2 * kBand, count - row);
    loops::multiply(Product<W>{.m = rows,
                               .n = padded(row + rows),
                               .k = k,
                               .a = a + row * a_stride,
                               .a_row = a_stride,
                               .a_col = 1,
                               .b = b,
                               .b_row = kDeltaChunk,
                               .c = c + row * kDeltaChunk,
                               .c_row = kDeltaChunk,
                               .keep = 0});
  }
}

/// Where a chunk is: tokens first .. first + count - 1.
struct ChunkPlace {
  int64_t first, count;
};
/// The tokens of a sequence, and their chunks.
struct SequencePlace {
  int64_t first, count;
  int64_t chunks() const { return (count + kDeltaChunk - 1) / kDeltaChunk; }
  ChunkPlace chunk(int64_t i) const {
    return {first + i * kDeltaChunk, std::min(kDeltaChunk, count - i * kDeltaChunk)};
  }
};

/// The rows of one head of a tensor [t, heads, width].
template <class T>
TensorRows<T> head_of(const at::Tensor& x, const ChunkPlace& at, int64_t head) {
  T* data;
  if constexpr (std::is_const_v<T>) {
    data = x.const_data_ptr<std::remove_const_t<T>>();
  } else {
    data = x.mutable_data_ptr<T>();
  }
  return {data + at.first * x.stride(0) + head * x.size(2), x.stride(0), x.size(2)};
}

template <class X>
struct DeltaUnit {  // one key head of one sequence
  using W = Wide<X>;
  const DeltaInput& in;
  const DeltaSizes& of;
  int64_t key_head;
  W scale;

  DeltaUnit(const DeltaInput& in, const DeltaSizes& of, int64_t key_head)
      : in(in),
        of(of),
        key_head(key_head),
        scale(static_cast<W>(1 / std::sqrt(static_cast<double>(of.d)))) {}

  Matrix<W> keys(W* data, int64_t rows) const { return {data, rows, padded(of.d), of.d_stride}; }
  Matrix<W> values(W* data, int64_t rows) const { return {data, rows, padded(of.e), of.e_stride}; }
  W* queries(const KeyChunk<W>& key, int64_t count) const { return key.kq + count * of.d_stride; }

  void read_keys(const KeyChunk<W>& key, const ChunkPlace& at) const {
    const int64_t count = at.count;
    W* const q = queries(key, count);
    loops::read_unit_rows(head_of<const X>(in.k_thd, at, key_head), W(1), keys(key.kq, count),
                          key.inverses);
    loops::read_unit_rows(head_of<const X>(in.q_thd, at, key_head), scale, keys(q, count),
                          key.inverses + kDeltaChunk);
    loops::transpose(keys(key.kq, count), key.k_columns, kDeltaChunk);
    multiply_to_triangle(count, of.d, key.kq, of.d_stride, key.k_columns, key.kk);
    multiply_to_triangle(count, of.d, q, of.d_stride, key.k_columns, key.qk);
  }

  loops::ChunkScores<W> scores(const KeyChunk<W>& key, const ValueChunk<W>& value,
                               int64_t count) const {
    return {count, value.sums, value.beta, key.kk, key.qk, value.decay, value.n, value.p};
  }

  void read_values(const KeyChunk<W>& key, ValueChunk<W>& value, const ChunkPlace& at,
                   int64_t head) const {
    const int64_t heads = in.v_tne.size(1);
    const W *g = in.g_tn.const_data_ptr<W>() + at.first * heads + head,
            *beta = in.beta_tn.const_data_ptr<W>() + at.first * heads + head;
    W sum = 0;
    for (int64_t i = 0; i < at.count; ++i) {
      sum += g[i * heads];
      value.sums[i] = sum;
      value.beta[i] = beta[i * heads];
      value.from_start[i] = std::exp(sum);
    }
    value.total = value.from_start[at.count - 1];
    for (int64_t i = 0; i < at.count; ++i) value.to_end[i] = std::exp(sum - value.sums[i]);
    loops::read_rows(head_of<const X>(in.v_tne, at, head), values(value.v, at.count));
    loops::chunk_scores(scores(key, value, at.count));
    loops::scale_rows(value.to_end, keys(key.kq, at.count), keys(value.kd, at.count));
  }

  /// reads = (k, or k and q) state, whose first rows become v - exp(sums) k state; then u.
  void solve(const KeyChunk<W>& key, const ValueChunk<W>& value, int64_t count, const W* state,
             bool with_queries) const {
    loops::multiply(Product<W>{.m = with_queries ? 2 * count : count,
                               .n = padded(of.e),
                               .k = of.d,
                               .a = key.kq,
                               .a_row = of.d_stride,
                               .a_col = 1,
                               .b = state,
                               .b_row = of.e_stride,
                               .c = value.reads,
                               .c_row = of.e_stride,
                               .keep = 0});
    const Matrix<W> errors = values(value.reads, count), u = values(value.u, count);
    loops::subtract_scaled_rows(value.from_start, values(value.v, count), errors);
    loops::scale_rows(value.beta, errors, u);
    loops::solve_below(value.n, u);
  }

  void write_out(const ValueChunk<W>& value, const ChunkPlace& at, int64_t head,
                 const at::Tensor& out) const {
    W* const sum = value.reads + at.count * of.e_stride;
    loops::scale_rows(value.from_start, values(sum, at.count), values(sum, at.count));
    multiply_triangle<false>(at.count, value.p, value.u, padded(of.e), of.e_stride, sum, W(1));
    loops::write_rows(values(sum, at.count), head_of<X>(out, at, head));
  }

  /// to = the decay of the chunk times `state`, plus what the chunk writes; to may be state.
  void advance(const ValueChunk<W>& value, int64_t count, W* state) const {
    loops::multiply(Product<W>{.m = of.d,
                               .n = padded(of.e),
                               .k = count,
                               .a = value.kd,
                               .a_row = 1,
                               .a_col = of.d_stride,
                               .b = value.u,
                               .b_row = of.e_stride,
                               .c = state,
                               .c_row = of.e_stride,
                               .keep = value.total});
  }

  /// The state of `head` of a sequence before its first token.
  void read_state(const at::Tensor& state_snde, int64_t sequence, int64_t head, W* to) const {
    std::fill(to, to + of.state(), W(0));
    if (!state_snde.defined()) return;
    const W* from =
        state_snde.const_data_ptr<W>() + (sequence * in.v_tne.size(1) + head) * of.d * of.e;
    loops::read_rows(TensorRows<const W>{from, of.e, of.e}, values(to, of.d));
  }
};

/// body(unit, sequence, its number) for every key head of every sequence.
template <class X, class Body>
void for_each_unit(const DeltaInput& in, const PackedSequences& sequences, const DeltaSizes& of,
                   const Body& body) {
  const int64_t heads = in.q_thd.size(1), count = static_cast<int64_t>(sequences.starts.size()) - 1;
  parallel_for(count * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto s = static_cast<size_t>(i / heads);
      const int64_t first = sequences.starts[s];
      body(DeltaUnit<X>(in, of, i % heads), SequencePlace{first, sequences.starts[s + 1] - first},
           i / heads);
    }
  });
}

template <class Body>
void with_delta_type(at::ScalarType type, const Body& body) {
  if (type == at::kDouble) return body(static_cast<double*>(nullptr));
  with_loop_type(type, body);
}

}  // namespace lft::ops::delta
