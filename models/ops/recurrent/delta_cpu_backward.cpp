#include "models/ops/recurrent/delta_chunk.h"
#include "models/ops/recurrent/delta_cpu.h"

namespace lft::ops {
namespace delta {
namespace {

/// What the backward pass needs beyond a chunk's own values.
template <class W>
struct GradientSpace {
  W *state_rows, *dstate_rows;  // [e, d]: transposed
  W* u_columns;                 // [e, count]
  W* dy;                        // [count, e]
  W* x;                         // [2 count, e]: the gradients of beta (v - ..) and of its reads
  W *dn, *dp, *dkk, *dqk;
  W *dkq, *part;  // [2 count, d]
  W *dsums, *dbeta, *by;

  static int64_t size(const DeltaSizes& of) {
    return 2 * padded(of.e) * of.d_stride + padded(of.e) * kDeltaChunk + 3 * of.rows * of.e_stride +
           4 * of.scores() + 4 * of.rows * of.d_stride + 3 * kDeltaChunk;
  }
  GradientSpace(Workspace<W>& from, const DeltaSizes& of)
      : state_rows(from.take(padded(of.e) * of.d_stride)),
        dstate_rows(from.take(padded(of.e) * of.d_stride)),
        u_columns(from.take(padded(of.e) * kDeltaChunk)),
        dy(from.take(of.rows * of.e_stride)),
        x(from.take(2 * of.rows * of.e_stride)),
        dn(from.take(of.scores())),
        dp(from.take(of.scores())),
        dkk(from.take(of.scores())),
        dqk(from.take(of.scores())),
        dkq(from.take(2 * of.rows * of.d_stride)),
        part(from.take(2 * of.rows * of.d_stride)),
        dsums(from.take(kDeltaChunk)),
        dbeta(from.take(kDeltaChunk)),
        by(from.take(kDeltaChunk)) {}
};

template <class X>
class BackwardUnit {
  using W = Wide<X>;

 public:
  BackwardUnit(const DeltaUnit<X>& unit, const at::Tensor& dout, const DeltaInput& gradients)
      : unit_(unit), of_(unit.of), dout_(dout), to_(gradients) {}

  void run(const SequencePlace& sequence, int64_t number, const at::Tensor& state_snde) const {
    const int64_t chunks = sequence.chunks(), group = of_.group, size = of_.state();
    Workspace<W> memory(KeyChunk<W>::size(of_) + ValueChunk<W>::size(of_) +
                        GradientSpace<W>::size(of_) + (chunks + 1) * group * size);
    const KeyChunk<W> key(memory, of_);
    ValueChunk<W> value(memory, of_);
    const GradientSpace<W> space(memory, of_);
    W *const states = memory.take(chunks * group * size), *const dstates =
                                                              memory.take(group * size);
    std::fill(dstates, dstates + group * size, W(0));
    make_states(key, value, sequence, number, state_snde, states);
    for (int64_t c = chunks - 1; c >= 0; --c) {
      const ChunkPlace at = sequence.chunk(c);
      unit_.read_keys(key, at);
      std::fill(space.dkq, space.dkq + 2 * at.count * of_.d_stride, W(0));
      std::fill(space.dkk, space.dkk + of_.scores(), W(0));
      std::fill(space.dqk, space.dqk + of_.scores(), W(0));
      for (int64_t g = 0; g < group; ++g)
        head(key, value, space, at, unit_.key_head * group + g,
             {.state = states + (c * group + g) * size,
              .dstate = dstates + g * size,
              .is_zero = c == 0 && !state_snde.defined(),
              .is_first = c == 0,
              .is_last = c == chunks - 1});
      finish_keys(key, space, at);
    }
  }

 private:
  /// The states before every chunk: states[chunk, value head of the group].
  void make_states(const KeyChunk<W>& key, ValueChunk<W>& value, const SequencePlace& sequence,
                   int64_t number, const at::Tensor& state_snde, W* states) const {
    const int64_t group = of_.group, size = of_.state(), first_head = unit_.key_head * group;
    for (int64_t g = 0; g < group; ++g)
      unit_.read_state(state_snde, number, first_head + g, states + g * size);
    for (int64_t c = 0; c + 1 < sequence.chunks(); ++c) {
      const ChunkPlace at = sequence.chunk(c);
      unit_.read_keys(key, at, /*with_queries=*/false);
      const bool is_zero = c == 0 && !state_snde.defined();
      for (int64_t g = 0; g < group; ++g) {
        W *const state = states + (c * group + g) * size, *const next = state + group * size;
        unit_.read_values(key, value, at, first_head + g);
        unit_.solve(key, value, at.count, is_zero ? nullptr : state, /*with_queries=*/false);
        std::copy(state, state + size, next);
        unit_.advance(value, at.count, next);
      }
    }
  }

  struct States {
    W *state, *dstate;                // before the chunk; the gradient of that after it
    bool is_zero, is_first, is_last;  // the state; the chunk of its sequence
  };

  /// One value head: adds to the gradients of keys and queries, and turns dstate from the gradient
  /// of the state after the chunk to that of the state before it.
  void head(const KeyChunk<W>& key, ValueChunk<W>& value, const GradientSpace<W>& space,
            const ChunkPlace& at, int64_t head, const States& of) const {
    const int64_t count = at.count, e_cols = padded(of_.e), e_stride = of_.e_stride;
    unit_.read_values(key, value, at, head);
    unit_.solve(key, value, count, of.is_zero ? nullptr : of.state, /*with_queries=*/false);
    loops::read_rows(head_of<const X>(dout_, at, head), unit_.values(space.dy, count));
    // The gradient of u, and through the system that of beta (v - exp(sums) k state).
    loops::multiply(Product<W>{.m = count,
                               .n = e_cols,
                               .k = of.is_last ? 0 : of_.d,
                               .a = value.kd,
                               .a_row = of_.d_stride,
                               .a_col = 1,
                               .b = of.dstate,
                               .b_row = e_stride,
                               .c = space.x,
                               .c_row = e_stride,
                               .keep = 0});
    multiply_triangle<true>(count, value.p, space.dy, e_cols, e_stride, space.x, W(1));
    loops::solve_above(value.n, unit_.values(space.x, count));
    // The scores.
    std::fill(space.dsums, space.dsums + count, W(0));
    std::fill(space.dbeta, space.dbeta + count, W(0));
    loops::transpose(unit_.values(value.u, count), space.u_columns, kDeltaChunk);
    multiply_to_triangle(count, of_.e, space.dy, e_stride, space.u_columns, space.dp);
    multiply_to_triangle(count, of_.e, space.x, e_stride, space.u_columns, space.dn);
    loops::chunk_scores_backward(
        loops::ChunkScoreGradients<W>{unit_.scores(key, value, count), space.dn, space.dp,
                                      space.dkk, space.dqk, space.dsums, space.dbeta});
    const W to_last = through_writes(value, space, count, of);
    for (int64_t i = 0; i < count; ++i) {
      const W *x = space.x + i * e_stride, *error = value.reads + i * e_stride;
      space.dbeta[i] += loops::row_dot(x, error, e_cols);
    }
    loops::scale_rows(value.beta, unit_.values(space.x, count), unit_.values(value.v, count));
    loops::write_rows(unit_.values(value.v, count), head_of<X>(to_.v_tne, at, head));
    through_reads(key, value, space, count, of);
    write_decays(space, at, head, to_last);
  }

  /// Gradients through kd^T u, the chunk's part of the next state, and through the decay of the
  /// state before it. Returns the gradient of the chunk's whole decay, in log space.
  W through_writes(const ValueChunk<W>& value, const GradientSpace<W>& space, int64_t count,
                   const States& of) const {
    if (of.is_last) return 0;
    loops::transpose(unit_.values(of.dstate, of_.d), space.dstate_rows, of_.d_stride);
    loops::multiply(Product<W>{.m = count,
                               .n = padded(of_.d),
                               .k = of_.e,
                               .a = value.u,
                               .a_row = of_.e_stride,
                               .a_col = 1,
                               .b = space.dstate_rows,
                               .b_row = of_.d_stride,
                               .c = space.part,
                               .c_row = of_.d_stride,
                               .keep = 0});
    loops::add_scaled_rows(value.to_end, unit_.keys(space.part, count),
                           unit_.keys(space.dkq, count));
    W to_last = 0;
    for (int64_t i = 0; i < count; ++i) {
      const W share =
          loops::row_dot(value.kd + i * of_.d_stride, space.part + i * of_.d_stride, of_.d);
      space.dsums[i] -= share;
      to_last += share;
    }
    W kept = 0;
    for (int64_t i = 0; i < of_.d; ++i)
      kept +=
          loops::row_dot(of.state + i * of_.e_stride, of.dstate + i * of_.e_stride, padded(of_.e));
    return to_last + value.total * kept;
  }

  /// Gradients through k state and q state.
  void through_reads(const KeyChunk<W>& key, const ValueChunk<W>& value,
                     const GradientSpace<W>& space, int64_t count, const States& of) const {
    for (int64_t i = 0; i < count; ++i) space.by[i] = -value.beta[i] * value.from_start[i];
    loops::scale_rows(space.by, unit_.values(space.x, count), unit_.values(space.x, count));
    loops::scale_rows(value.from_start, unit_.values(space.dy, count),
                      unit_.values(space.x + count * of_.e_stride, count));
    if (!of.is_zero) add_read_gradients(key, space, count, of.state);
    if (of.is_first) return;
    loops::multiply(Product<W>{.m = of_.d,
                               .n = padded(of_.e),
                               .k = 2 * count,
                               .a = key.kq,
                               .a_row = 1,
                               .a_col = of_.d_stride,
                               .b = space.x,
                               .b_row = of_.e_stride,
                               .c = of.dstate,
                               .c_row = of_.e_stride,
                               .keep = value.total});
  }

  /// Adds the gradients of keys and queries through what they read.
  void add_read_gradients(const KeyChunk<W>& key, const GradientSpace<W>& space, int64_t count,
                          W* state) const {
    loops::transpose(unit_.values(state, of_.d), space.state_rows, of_.d_stride);
    loops::multiply(Product<W>{.m = 2 * count,
                               .n = padded(of_.d),
                               .k = of_.e,
                               .a = space.x,
                               .a_row = of_.e_stride,
                               .a_col = 1,
                               .b = space.state_rows,
                               .b_row = of_.d_stride,
                               .c = space.part,
                               .c_row = of_.d_stride,
                               .keep = 0});
    loops::add_scaled_rows(nullptr, unit_.keys(space.part, 2 * count),
                           unit_.keys(space.dkq, 2 * count));
    for (int64_t i = 0; i < 2 * count; ++i) {
      space.dsums[i % count] +=
          loops::row_dot(key.kq + i * of_.d_stride, space.part + i * of_.d_stride, of_.d);
    }
  }

  /// The g of a token is a term of the cumulative sums of that token and of all later ones.
  void write_decays(const GradientSpace<W>& space, const ChunkPlace& at, int64_t head,
                    W to_last) const {
    const int64_t heads = to_.g_tn.size(1);
    W* const dg = to_.g_tn.template mutable_data_ptr<W>() + at.first * heads + head;
    W* const dbeta = to_.beta_tn.template mutable_data_ptr<W>() + at.first * heads + head;
    W sum = to_last;
    for (int64_t i = at.count - 1; i >= 0; --i) {
      sum += space.dsums[i];
      dg[i * heads] = sum;
      dbeta[i * heads] = space.dbeta[i];
    }
  }

  /// The gradients of kk and qk, of all value heads of the key head, and of the lengths.
  void finish_keys(const KeyChunk<W>& key, const GradientSpace<W>& space,
                   const ChunkPlace& at) const {
    const int64_t count = at.count, cols = padded(of_.d), stride = of_.d_stride;
    const W *k = key.kq, *q = unit_.queries(key, count);
    W *const dk = space.dkq, *const dq = space.dkq + count * stride;
    multiply_triangle<false>(count, space.dqk, k, cols, stride, dq, W(1));
    multiply_triangle<true>(count, space.dqk, q, cols, stride, dk, W(1));
    multiply_triangle<false>(count, space.dkk, k, cols, stride, dk, W(1));
    multiply_triangle<true>(count, space.dkk, k, cols, stride, dk, W(1));
    loops::write_unit_row_gradients(unit_.keys(key.kq, count), unit_.keys(dk, count), W(1),
                                    key.inverses, head_of<X>(to_.k_thd, at, unit_.key_head));
    loops::write_unit_row_gradients(unit_.keys(unit_.queries(key, count), count),
                                    unit_.keys(dq, count), unit_.scale, key.inverses + kDeltaChunk,
                                    head_of<X>(to_.q_thd, at, unit_.key_head));
  }

  const DeltaUnit<X>& unit_;
  const DeltaSizes& of_;
  const at::Tensor& dout_;
  const DeltaInput& to_;
};

}  // namespace
}  // namespace delta

DeltaInput cpu_delta_gradients(const DeltaInput& in, const PackedSequences& sequences,
                               const at::Tensor& state_snde, const at::Tensor& dout_tne) {
  using namespace delta;
  const DeltaSizes of(in, sequences);
  const auto dense = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const DeltaInput gradients{dense(in.q_thd), dense(in.k_thd), dense(in.v_tne), dense(in.g_tn),
                             dense(in.beta_tn)};
  with_delta_type(in.v_tne.scalar_type(), [&](auto* type) {
    using X = std::remove_pointer_t<decltype(type)>;
    for_each_unit<X>(in, sequences, of,
                     [&](const DeltaUnit<X>& unit, const SequencePlace& sequence, int64_t number) {
                       BackwardUnit<X>(unit, dout_tne, gradients).run(sequence, number, state_snde);
                     });
  });
  return gradients;
}

}  // namespace lft::ops
