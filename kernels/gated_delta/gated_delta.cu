#include <cmath>

#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/gated_delta/chunk_gradients.cuh"
#include "kernels/gated_delta/sequences.cuh"

namespace lft {
namespace {

using namespace delta_kernel;

// The recurrences, token by token: a column of the state, or of its gradient, is in the registers
// of kGroups threads, and columns are independent.

constexpr int kThreads = 128;
constexpr int kGroups = 4;  // threads of a column
constexpr int kRows = int(kGatedDeltaMostKeys) / kGroups;
constexpr int kColumns = kThreads / kGroups;
constexpr int kTile = 16;  // tokens in shared memory; kChunk is a multiple

/// What all columns of a block read of some tokens.
struct Tile {
  float k[kTile][kGatedDeltaMostKeys], q[kTile][kGatedDeltaMostKeys];  // of length 1; q: scaled
  float v[kTile][kColumns];
  float decay[kTile], beta[kTile];
};

/// A row of q or k: divided by its length, and zeros up to kGatedDeltaMostKeys. By a warp.
template <class T>
__device__ void load_unit(const T* from, int64_t d, float scale, float* to) {
  const int lane = threadIdx.x % kWarp;
  float values[kGatedDeltaMostKeys / kWarp], squares = 0;
#pragma unroll
  for (int i = 0; i < int(kGatedDeltaMostKeys) / kWarp; ++i) {
    const int at = lane + i * kWarp;
    values[i] = at < d ? float(from[at]) : 0.f;
    squares += values[i] * values[i];
  }
  const float by = rsqrtf(warp_sum(squares) + kLengthEps) * scale;
#pragma unroll
  for (int i = 0; i < int(kGatedDeltaMostKeys) / kWarp; ++i) to[lane + i * kWarp] = values[i] * by;
}

/// The place of a thread.
struct Place {
  int64_t sequence, head, key_head, column;
  int group, local;  // local: the column within the block
  bool live, writes;

  __device__ explicit Place(const GatedDeltaArgs& args) {
    const int64_t slices = (args.e + kColumns - 1) / kColumns, block = blockIdx.x;
    sequence = block / slices / args.heads;
    head = block / slices % args.heads;
    key_head = head * args.key_heads / args.heads;
    group = int(threadIdx.x) % kGroups;
    local = int(threadIdx.x) / kGroups;
    column = block % slices * kColumns + local;
    live = column < args.e;
    writes = live && group == 0;
  }
  __device__ int row(int i) const { return i * kGroups + group; }
};

/// `count` tokens from `token` on; values: v, or the gradient of the output. All threads call it.
template <class T>
__device__ void load_tile(const GatedDeltaArgs& args, const Place& place, int64_t token, int count,
                          const T* values, int64_t value_stride, Tile& tile) {
  const int warp = int(threadIdx.x) / kWarp;
  const float scale = rsqrtf(float(args.d));
  __syncthreads();  // before the last tile is overwritten
  for (int i = warp; i < count; i += kThreads / kWarp) {
    load_unit(static_cast<const T*>(args.k) + (token + i) * args.k_stride + place.key_head * args.d,
              args.d, 1.f, tile.k[i]);
    load_unit(static_cast<const T*>(args.q) + (token + i) * args.q_stride + place.key_head * args.d,
              args.d, scale, tile.q[i]);
  }
  const int64_t first_column = place.column - place.local;
  for (int i = int(threadIdx.x); i < count * kColumns; i += kThreads) {
    const int row = i / kColumns, column = i % kColumns;
    const bool in = first_column + column < args.e;
    tile.v[row][column] =
        in ? float(
                 values[(token + row) * value_stride + place.head * args.e + first_column + column])
           : 0.f;
  }
  if (int(threadIdx.x) < count) {
    const int64_t at = (token + threadIdx.x) * args.heads + place.head;
    tile.decay[threadIdx.x] = expf(args.g[at]);
    tile.beta[threadIdx.x] = args.beta[at];
  }
  __syncthreads();
}

/// The sum over the threads of a column, in each of them.
__device__ float column_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  value += __shfl_xor_sync(~0u, value, 2);
  return value;
}

__device__ void store_state(const GatedDeltaArgs& args, const Place& place, const float* state,
                            float* to) {
  if (!place.live) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (place.row(i) < args.d) to[place.row(i) * args.e + place.column] = state[i];
  }
}

struct ForwardResults {
  void* out;
  float *last, *states, *errors;  // each may be null
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(GatedDeltaArgs args, ForwardResults to) {
  __shared__ Tile tile;
  const Place place(args);
  const Sequence sequence(args, place.sequence);
  const int64_t own = state_index(args, place.sequence, place.head);
  float state[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool given = args.state != nullptr && place.live && place.row(i) < args.d;
    state[i] = given ? args.state[own + place.row(i) * args.e + place.column] : 0.f;
  }
  for (int64_t begin = 0; begin < sequence.count; begin += kTile) {
    const int count = int(sequence.count - begin < kTile ? sequence.count - begin : kTile);
    const int64_t token = sequence.first + begin;
    if (to.states != nullptr && begin % kChunk == 0)
      store_state(args, place, state,
                  to.states + state_index(args, sequence.slot + begin / kChunk, place.head));
    load_tile(args, place, token, count, static_cast<const T*>(args.v), args.v_stride, tile);
    for (int i = 0; i < count; ++i) {
      float read = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        state[r] *= tile.decay[i];
        read += tile.k[i][place.row(r)] * state[r];
      }
      const float error = tile.v[i][place.local] - column_sum(read);
      const float write = tile.beta[i] * error;
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        state[r] += tile.k[i][place.row(r)] * write;
        sum += tile.q[i][place.row(r)] * state[r];
      }
      sum = column_sum(sum);
      const int64_t at = ((token + i) * args.heads + place.head) * args.e + place.column;
      if (place.writes && to.out != nullptr) static_cast<T*>(to.out)[at] = T(sum);
      if (place.writes && to.errors != nullptr) to.errors[at] = error;
    }
  }
  if (to.last != nullptr) store_state(args, place, state, to.last + own);
}

/// dstates: the gradient of the state after each chunk. dwrites: that of beta * error.
template <class T>
__global__ void __launch_bounds__(kThreads)
    reverse_kernel(GatedDeltaArgs args, const T* dout, float* dstates, float* dwrites, T* dv) {
  __shared__ Tile tile;
  const Place place(args);
  const Sequence sequence(args, place.sequence);
  float dstate[kRows] = {};
  const int64_t tiles = (sequence.count + kTile - 1) / kTile;
  for (int64_t number = tiles - 1; number >= 0; --number) {
    const int64_t begin = number * kTile, token = sequence.first + begin;
    const int count = int(sequence.count - begin < kTile ? sequence.count - begin : kTile);
    if (number == tiles - 1 || (begin + kTile) % kChunk == 0)
      store_state(args, place, dstate,
                  dstates + state_index(args, sequence.slot + begin / kChunk, place.head));
    load_tile(args, place, token, count, dout, args.heads * args.e, tile);
    for (int i = count - 1; i >= 0; --i) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        dstate[r] += tile.q[i][place.row(r)] * tile.v[i][place.local];
        sum += tile.k[i][place.row(r)] * dstate[r];
      }
      const float dwrite = column_sum(sum), dvalue = tile.beta[i] * dwrite;
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        dstate[r] = tile.decay[i] * (dstate[r] - tile.k[i][place.row(r)] * dvalue);
      const int64_t at = ((token + i) * args.heads + place.head) * args.e + place.column;
      if (place.writes) {
        dwrites[at] = dwrite;
        dv[at] = T(dvalue);
      }
    }
  }
}

unsigned recurrence_blocks(const GatedDeltaArgs& args) {
  return unsigned(args.sequences * args.heads * ((args.e + kColumns - 1) / kColumns));
}

bool is_empty(const GatedDeltaArgs& args) {
  return args.sequences == 0 || args.heads == 0 || args.d == 0 || args.e == 0;
}

}  // namespace

void gated_delta(const GatedDeltaArgs& args, void* out, float* last, Stream stream) {
  if (is_empty(args)) return;
  with_type(args.type, [&](auto type) {
    launch("gated_delta launch", forward_kernel<decltype(type)>, recurrence_blocks(args), kThreads,
           stream, args, ForwardResults{out, last, nullptr, nullptr});
  });
}

int64_t gated_delta_workspace(const GatedDeltaArgs& args) {
  const int64_t states = slots_of(args) * args.heads * args.d * args.e;
  return 2 * states + 2 * args.tokens * args.heads * args.e +
         2 * args.tokens * args.key_heads * args.d;
}

void gated_delta_backward(const GatedDeltaArgs& args, const GatedDeltaGradients& of,
                          float* workspace, Stream stream) {
  if (is_empty(args) || args.tokens == 0) return;
  const int64_t states = slots_of(args) * args.heads * args.d * args.e,
                values = args.tokens * args.heads * args.e,
                keys = args.tokens * args.key_heads * args.d;
  float *const before = workspace, *const after = before + states, *const errors = after + states,
               *const dwrites = errors + values, *const dq = dwrites + values,
               *const dk = dq + keys;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    launch("gated_delta states launch", forward_kernel<T>, recurrence_blocks(args), kThreads,
           stream, args, ForwardResults{nullptr, nullptr, before, errors});
    launch("gated_delta reverse launch", reverse_kernel<T>, recurrence_blocks(args), kThreads,
           stream, args, static_cast<const T*>(of.dout), after, dwrites, static_cast<T*>(of.dv));
    launch("gated_delta backward launch", local_kernel<T>,
           unsigned(slots_of(args) * args.key_heads), kLocalThreads, stream, args,
           LocalInputs{of.dout, before, after, errors, dwrites, dq, dk, of.dg, of.dbeta});
    const int64_t rows = args.tokens * args.key_heads;
    const auto blocks = unsigned((rows + kLengthThreads / kWarp - 1) / (kLengthThreads / kWarp));
    launch("gated_delta queries launch", length_kernel<T>, blocks, kLengthThreads, stream, rows,
           args.key_heads, args.d, args.q_stride, 1 / std::sqrt(float(args.d)),
           static_cast<const T*>(args.q), static_cast<const float*>(dq), static_cast<T*>(of.dq));
    launch("gated_delta keys launch", length_kernel<T>, blocks, kLengthThreads, stream, rows,
           args.key_heads, args.d, args.k_stride, 1.f, static_cast<const T*>(args.k),
           static_cast<const float*>(dk), static_cast<T*>(of.dk));
  });
}

}  // namespace lft
