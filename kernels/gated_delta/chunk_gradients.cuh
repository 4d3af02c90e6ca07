// Gradients of q, k, g and beta with all states known: matrix products within a chunk, whose rows
// are its tokens. A block has one chunk and one key head. Thread t has rows 4 (t / 16) + 0..3 and
// columns t % 16 + 16 * 0..3 of a result [64, 64].
#pragma once
#include "kernels/common/types.cuh"
#include "kernels/gated_delta/sequences.cuh"

namespace lft::delta_kernel {
namespace {

constexpr int kLocalThreads = 256;
constexpr int kAcross = 16;  // threads of a row
constexpr int kPer = 4;      // rows and columns of a thread
constexpr int kDepth = 16;   // of a step of a product

using Result = float[kPer][kPer];

__device__ int row_of(int i) { return int(threadIdx.x) / kAcross * kPer + i; }
__device__ int column_of(int i) { return int(threadIdx.x) % kAcross + i * kAcross; }

/// A step of both operands, in shared memory: one array for all products.
struct Operands {
  float a[kChunk][kDepth + 1], b[kChunk][kDepth + 1];
};

/// result += the sum over s < depth of a(row, s) b(column, s). All threads call it.
template <class A, class B>
__device__ void add_product(Operands& operands, Result& result, int64_t depth, const A& a,
                            const B& b) {
  for (int64_t from = 0; from < depth; from += kDepth) {
    __syncthreads();
    for (int i = int(threadIdx.x); i < kChunk * kDepth; i += kLocalThreads) {
      const int row = i / kDepth, step = i % kDepth;
      const bool in = from + step < depth;
      operands.a[row][step] = in ? a(row, from + step) : 0.f;
      operands.b[row][step] = in ? b(row, from + step) : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kDepth; ++s) {
#pragma unroll
      for (int r = 0; r < kPer; ++r) {
#pragma unroll
        for (int c = 0; c < kPer; ++c)
          result[r][c] += operands.a[row_of(r)][s] * operands.b[column_of(c)][s];
      }
    }
  }
}

/// to[row] += sign * the sum over a row of `value`, in a fixed order.
__device__ void add_row_sums(const Result& value, float sign, float* to) {
#pragma unroll
  for (int r = 0; r < kPer; ++r) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kPer; ++c) sum += value[r][c];
#pragma unroll
    for (int offset = kAcross / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(~0u, sum, offset);
    if (int(threadIdx.x) % kAcross == 0) to[row_of(r)] += sign * sum;
  }
}

struct LocalInputs {
  const void* dout;
  const float *states, *dstates, *errors, *dwrites;
  float *dq, *dk;  // [tokens, key_heads, d]: of the vectors of length 1
  float *dg, *dbeta;
};

/// What a chunk's threads share. `count` rows; the rest are zeros.
struct Chunk {
  float inverse_k[kChunk], inverse_q[kChunk];
  float sums[kChunk], beta[kChunk], from_start[kChunk], to_end[kChunk];
  float dsums[kChunk], shares[kChunk], dbeta[kChunk];
  float matrix[kChunk][kChunk + 1];
  Operands operands;
};

/// A block's chunk; `count` is 0 if there is none.
struct ChunkPlace {
  int64_t key_head, first, slot, count;

  __device__ explicit ChunkPlace(const GatedDeltaArgs& args) {
    key_head = int64_t(blockIdx.x) % args.key_heads;
    slot = int64_t(blockIdx.x) / args.key_heads;
    count = first = 0;
    for (int64_t s = 0; s < args.sequences; ++s) {
      const Sequence sequence(args, s);
      const int64_t begin = (slot - sequence.slot) * kChunk;
      if (begin < 0 || begin >= sequence.count) continue;
      first = sequence.first + begin;
      count = sequence.count - begin < kChunk ? sequence.count - begin : kChunk;
    }
  }
};

/// 1 / length of every row.
template <class T>
__device__ void load_lengths(const T* from, int64_t stride, const ChunkPlace& place, int64_t d,
                             float* inverse) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int row = int(threadIdx.x) / kWarp; row < kChunk; row += kLocalThreads / kWarp) {
    float squares = 0;
    for (int64_t i = lane; i < d && row < place.count; i += kWarp) {
      const float x = float(from[(place.first + row) * stride + place.key_head * d + i]);
      squares += x * x;
    }
    squares = warp_sum(squares);
    if (lane == 0) inverse[row] = rsqrtf(squares + kLengthEps);
  }
}

template <class T>
class LocalBlock {
 public:
  __device__ LocalBlock(const GatedDeltaArgs& args, const LocalInputs& in, Chunk& chunk,
                        const ChunkPlace& place)
      : args_(args), in_(in), chunk_(chunk), place_(place), scale_(rsqrtf(float(args.d))) {}

  __device__ void run() {
    load_lengths(static_cast<const T*>(args_.k), args_.k_stride, place_, args_.d, chunk_.inverse_k);
    load_lengths(static_cast<const T*>(args_.q), args_.q_stride, place_, args_.d, chunk_.inverse_q);
    __syncthreads();
    const auto k = [&](int row, int64_t i) { return key(row, i); };
    const auto q = [&](int row, int64_t i) { return query(row, i); };
    Result kk = {}, qk = {}, dkk = {}, dqk = {};
    add_product(chunk_.operands, kk, args_.d, k, k);
    add_product(chunk_.operands, qk, args_.d, q, k);
    const int64_t group = args_.heads / args_.key_heads;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = place_.key_head * group + g;
      load_scalars(head);
      scores(head, kk, qk, dkk, dqk);
      for (int64_t from = 0; from < args_.d; from += kChunk) through_states(head, from, g == 0);
      write_decays(head);
    }
    finish(dqk, /*of_queries=*/true);
    finish(dkk, /*of_queries=*/false);
  }

 private:
  __device__ float key(int row, int64_t i) const {
    const T* from = static_cast<const T*>(args_.k) + place_.key_head * args_.d + i;
    return row < place_.count && i < args_.d
               ? float(from[(place_.first + row) * args_.k_stride]) * chunk_.inverse_k[row]
               : 0.f;
  }
  __device__ float query(int row, int64_t i) const {
    const T* from = static_cast<const T*>(args_.q) + place_.key_head * args_.d + i;
    return row < place_.count && i < args_.d ? float(from[(place_.first + row) * args_.q_stride]) *
                                                   (chunk_.inverse_q[row] * scale_)
                                             : 0.f;
  }
  /// An element of [tokens, heads, e].
  template <class Element>
  __device__ float of_head(const Element* from, int64_t head, int row, int64_t column) const {
    return row < place_.count
               ? float(from[((place_.first + row) * args_.heads + head) * args_.e + column])
               : 0.f;
  }
  /// beta * error.
  __device__ float written(int64_t head, int row, int64_t column) const {
    return chunk_.beta[row] * of_head(in_.errors, head, row, column);
  }

  __device__ void load_scalars(int64_t head) {
    __syncthreads();
    const int row = int(threadIdx.x);
    if (row < kChunk) {
      const bool in = row < place_.count;
      const int64_t at = (place_.first + row) * args_.heads + head;
      chunk_.sums[row] = in ? args_.g[at] : 0.f;
      chunk_.beta[row] = in ? args_.beta[at] : 0.f;
      chunk_.dsums[row] = chunk_.shares[row] = chunk_.dbeta[row] = 0.f;
    }
    __syncthreads();
    if (row == 0) {
      for (int i = 1; i < kChunk; ++i) chunk_.sums[i] += chunk_.sums[i - 1];
    }
    __syncthreads();
    if (row < kChunk) {
      chunk_.from_start[row] = expf(chunk_.sums[row]);
      chunk_.to_end[row] = expf(chunk_.sums[kChunk - 1] - chunk_.sums[row]);
    }
    __syncthreads();
  }

  /// Gradients through the products of the chunk's own keys and queries, and of beta.
  __device__ void scores(int64_t head, const Result& kk, const Result& qk, Result& dkk,
                         Result& dqk) {
    const auto* dout = static_cast<const T*>(in_.dout);
    const auto u = [&](int row, int64_t c) { return written(head, row, c); };
    const auto dwrite = [&](int row, int64_t c) { return of_head(in_.dwrites, head, row, c); };
    Result dp = {}, dn = {}, both;
    add_product(
        chunk_.operands, dp, args_.e,
        [&](int row, int64_t c) { return of_head(dout, head, row, c); }, u);
    add_product(chunk_.operands, dn, args_.e, dwrite, u);
#pragma unroll
    for (int r = 0; r < kPer; ++r) {
#pragma unroll
      for (int c = 0; c < kPer; ++c) {
        const int i = row_of(r), j = column_of(c);
        const float decay = j <= i ? expf(chunk_.sums[i] - chunk_.sums[j]) : 0.f;
        const float below = j < i ? -chunk_.beta[i] * decay * dn[r][c] : 0.f, on = decay * dp[r][c];
        dkk[r][c] += below;
        dqk[r][c] += on;
        both[r][c] = below * kk[r][c] + on * qk[r][c];
      }
    }
    add_row_sums(both, 1.f, chunk_.dsums);
    subtract_column_sums(both);
    add_beta_gradients(head);
  }

  __device__ void subtract_column_sums(const Result& value) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kPer; ++r) {
#pragma unroll
      for (int c = 0; c < kPer; ++c) chunk_.matrix[row_of(r)][column_of(c)] = value[r][c];
    }
    __syncthreads();
    if (int(threadIdx.x) < kChunk) {
      float sum = 0;
      for (int i = 0; i < kChunk; ++i) sum += chunk_.matrix[i][threadIdx.x];
      chunk_.dsums[threadIdx.x] -= sum;
    }
    __syncthreads();
  }

  __device__ void add_beta_gradients(int64_t head) {
    const int lane = int(threadIdx.x) % kWarp;
    for (int row = int(threadIdx.x) / kWarp; row < kChunk; row += kLocalThreads / kWarp) {
      float sum = 0;
      for (int64_t c = lane; c < args_.e; c += kWarp)
        sum += of_head(in_.dwrites, head, row, c) * of_head(in_.errors, head, row, c);
      sum = warp_sum(sum);
      if (lane == 0) chunk_.dbeta[row] = sum;
    }
  }

  /// Gradients of columns from .. from + 63 of keys and queries, through the states before and
  /// after the chunk.
  __device__ void through_states(int64_t head, int64_t from, bool first) {
    const int64_t at = state_index(args_, place_.slot, head);
    const float *state = in_.states + at, *dstate = in_.dstates + at;
    const auto* dout = static_cast<const T*>(in_.dout);
    const auto row_in = [&](const float* of, int row, int64_t c) {
      return from + row < args_.d ? of[(from + row) * args_.e + c] : 0.f;
    };
    const auto before = [&](int row, int64_t c) { return row_in(state, row, c); };
    const auto after = [&](int row, int64_t c) { return row_in(dstate, row, c); };
    Result writes = {}, key_reads = {}, query_reads = {};
    add_product(
        chunk_.operands, writes, args_.e, [&](int row, int64_t c) { return written(head, row, c); },
        after);
    add_product(
        chunk_.operands, key_reads, args_.e,
        [&](int row, int64_t c) { return of_head(in_.dwrites, head, row, c); }, before);
    add_product(
        chunk_.operands, query_reads, args_.e,
        [&](int row, int64_t c) { return of_head(dout, head, row, c); }, before);
    Result shares, reads;
#pragma unroll
    for (int r = 0; r < kPer; ++r) {
      const int row = row_of(r);
      const float start = chunk_.from_start[row], write_by = chunk_.to_end[row],
                  read_by = -chunk_.beta[row] * start;
#pragma unroll
      for (int c = 0; c < kPer; ++c) {
        const int64_t i = from + column_of(c);
        const float share = write_by * writes[r][c], read = read_by * key_reads[r][c],
                    asked = start * query_reads[r][c];
        shares[r][c] = key(row, i) * share;
        reads[r][c] = key(row, i) * read + query(row, i) * asked;
        add_to_keys(row, i, share + read, asked, first);
      }
    }
    add_row_sums(shares, 1.f, chunk_.shares);
    add_row_sums(reads, 1.f, chunk_.dsums);
  }

  __device__ void add_to_keys(int row, int64_t i, float dk, float dq, bool first) const {
    if (row >= place_.count || i >= args_.d) return;
    const int64_t at = ((place_.first + row) * args_.key_heads + place_.key_head) * args_.d + i;
    in_.dk[at] = first ? dk : in_.dk[at] + dk;
    in_.dq[at] = first ? dq : in_.dq[at] + dq;
  }

  /// The g of a token is a term of the cumulative sums of that token and of all later ones.
  __device__ void write_decays(int64_t head) {
    const int64_t at = state_index(args_, place_.slot, head);
    float kept = 0;
    for (int64_t i = threadIdx.x; i < args_.d * args_.e; i += kLocalThreads)
      kept += in_.states[at + i] * in_.dstates[at + i];
    kept = block_sum<kLocalThreads>(kept);  // also waits for all row sums
    if (threadIdx.x != 0) return;
    float sum = chunk_.from_start[kChunk - 1] * kept;
    for (int i = 0; i < kChunk; ++i) sum += chunk_.shares[i];
    for (int i = int(place_.count) - 1; i >= 0; --i) {
      sum += chunk_.dsums[i] - chunk_.shares[i];
      const int64_t token = (place_.first + i) * args_.heads + head;
      in_.dg[token] = sum;
      in_.dbeta[token] = chunk_.dbeta[i];
    }
  }

  /// Adds the gradients through q k^T or k k^T, given that of the product.
  __device__ void finish(const Result& gradient, bool of_queries) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kPer; ++r) {
#pragma unroll
      for (int c = 0; c < kPer; ++c) chunk_.matrix[row_of(r)][column_of(c)] = gradient[r][c];
    }
    __syncthreads();
    for (int64_t from = 0; from < args_.d; from += kChunk) {
      const auto keys = [&](int column, int64_t row) { return key(int(row), from + column); };
      const auto rows = [&](int column, int64_t row) {
        return of_queries ? query(int(row), from + column) : key(int(row), from + column);
      };
      Result left = {}, right = {};
      add_product(
          chunk_.operands, left, kChunk, [&](int row, int64_t s) { return chunk_.matrix[row][s]; },
          keys);
      add_product(
          chunk_.operands, right, kChunk, [&](int row, int64_t s) { return chunk_.matrix[s][row]; },
          rows);
#pragma unroll
      for (int r = 0; r < kPer; ++r) {
#pragma unroll
        for (int c = 0; c < kPer; ++c) {
          add_to_keys(row_of(r), from + column_of(c), right[r][c] + (of_queries ? 0.f : left[r][c]),
                      of_queries ? left[r][c] : 0.f, /*first=*/false);
        }
      }
    }
  }

  const GatedDeltaArgs& args_;
  const LocalInputs& in_;
  Chunk& chunk_;
  const ChunkPlace& place_;
  const float scale_;
};

template <class T>
__global__ void __launch_bounds__(kLocalThreads) local_kernel(GatedDeltaArgs args, LocalInputs in) {
  __shared__ Chunk chunk;
  const ChunkPlace place(args);
  if (place.count == 0) return;  // the whole block
  LocalBlock<T>(args, in, chunk, place).run();
}

constexpr int kLengthThreads = 128;

/// dx from x [tokens, heads, d], and the gradient of x * scale / length. A warp a row.
template <class T>
__global__ void __launch_bounds__(kLengthThreads)
    length_kernel(int64_t rows, int64_t heads, int64_t d, int64_t stride, float scale, const T* x,
                  const float* dunit, T* dx) {
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t row = int64_t(blockIdx.x) * (kLengthThreads / kWarp) + int(threadIdx.x) / kWarp;
  if (row >= rows) return;  // the whole warp
  const T* from = x + row / heads * stride + row % heads * d;
  float squares = 0, dot = 0;
  for (int64_t i = lane; i < d; i += kWarp) {
    const float value = float(from[i]);
    squares += value * value;
    dot += value * dunit[row * d + i];
  }
  const float inverse = rsqrtf(warp_sum(squares) + kLengthEps);
  const float along = inverse * inverse * warp_sum(dot);
  for (int64_t i = lane; i < d; i += kWarp)
    dx[row * d + i] = T(inverse * scale * (dunit[row * d + i] - float(from[i]) * along));
}

}  // namespace
}  // namespace lft::delta_kernel
