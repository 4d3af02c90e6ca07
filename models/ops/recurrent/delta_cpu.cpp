#include "models/ops/recurrent/delta_cpu.h"

#include "models/ops/recurrent/delta_chunk.h"

namespace lft::ops {
namespace delta {
namespace {

template <class X>
void forward_unit(const DeltaUnit<X>& unit, const SequencePlace& sequence, int64_t number,
                  const at::Tensor& state_snde, const DeltaResult& result) {
  using W = Wide<X>;
  const DeltaSizes& of = unit.of;
  Workspace<W> memory(KeyChunk<W>::size(of) + ValueChunk<W>::size(of) + of.group * of.state());
  const KeyChunk<W> key(memory, of);
  ValueChunk<W> value(memory, of);
  W* const states = memory.take(of.group * of.state());
  const int64_t first_head = unit.key_head * of.group;
  for (int64_t g = 0; g < of.group; ++g)
    unit.read_state(state_snde, number, first_head + g, states + g * of.state());
  for (int64_t c = 0; c < sequence.chunks(); ++c) {
    const ChunkPlace at = sequence.chunk(c);
    unit.read_keys(key, at);
    for (int64_t g = 0; g < of.group; ++g) {
      W* const state = states + g * of.state();
      unit.read_values(key, value, at, first_head + g);
      const bool fresh = c == 0 && !state_snde.defined();
      unit.solve(key, value, at.count, fresh ? nullptr : state, /*with_queries=*/true);
      unit.write_out(value, at, first_head + g, result.out_tne);
      unit.advance(value, at.count, state);
    }
  }
  if (!result.state_snde.defined()) return;
  for (int64_t g = 0; g < of.group; ++g) {
    W* const to = result.state_snde.mutable_data_ptr<W>() +
                  (number * unit.in.v_tne.size(1) + first_head + g) * of.d * of.e;
    loops::write_rows(unit.values(states + g * of.state(), of.d), TensorRows<W>{to, of.e, of.e});
  }
}

}  // namespace
}  // namespace delta

DeltaResult cpu_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                           const at::Tensor& state_snde, bool final_state) {
  using namespace delta;
  const DeltaSizes of(in, sequences);
  const auto count = static_cast<int64_t>(sequences.starts.size()) - 1;
  DeltaResult result{at::empty(in.v_tne.sizes(), in.v_tne.options()), {}};
  if (final_state)
    result.state_snde = at::empty({count, in.v_tne.size(1), of.d, of.e}, in.g_tn.options());
  with_delta_type(in.v_tne.scalar_type(), [&](auto* type) {
    using X = std::remove_pointer_t<decltype(type)>;
    for_each_unit<X>(in, sequences, of,
                     [&](const DeltaUnit<X>& unit, const SequencePlace& sequence, int64_t number) {
                       forward_unit(unit, sequence, number, state_snde, result);
                     });
  });
  return result;
}

}  // namespace lft::ops
