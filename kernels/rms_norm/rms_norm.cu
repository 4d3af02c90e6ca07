#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/rms_norm/rms_norm.h"

namespace lft {
namespace {

constexpr int kWidth = 8;  // elements per thread and access: 16 bytes of the narrow types

// ------------------------------------------------------------------------------------------------
// The assignment of elements to threads and the order of a row's sum depend on `cols` only, not on
// the alignment or on other rows.

constexpr int kPacks = 2;           // packs of each array in a thread's registers
constexpr int kMostThreads = 512;   // per row, and per block
constexpr int kUsualThreads = 256;  // per block of narrow rows
constexpr int64_t kMostHeld = kMostThreads * kPacks * kWidth;  // columns

/// `lanes` threads per row: a power of two, or whole warps for wide rows. `rows` rows per block;
/// thread t belongs to row t >> shift.
struct Shape {
  int lanes, rows, shift;
  float inverse_cols;
};

Shape shape_of(int64_t cols) {
  const int64_t held = cols < kMostHeld ? cols : kMostHeld;
  const int needed = int((held + kPacks * kWidth - 1) / (kPacks * kWidth));
  const float inverse = 1.f / float(cols);
  int lanes = 1, shift = 0;
  for (; lanes < needed && lanes < kUsualThreads; lanes *= 2) ++shift;
  if (lanes < kUsualThreads) return {lanes, kUsualThreads / lanes, shift, inverse};
  return {(needed + kWarp - 1) / kWarp * kWarp, 1, 10, inverse};  // no block has 2^10 threads
}

/// A thread's position: pack p of its row begins at column(p).
struct Place {
  int64_t row, first, cols;  // first: index of the row's first element
  int lane, lanes, row_of_block;
  bool in;  // false: beyond the last row

  __device__ Place(const RmsNormArgs& args, Shape shape) {
    cols = args.cols;
    lanes = shape.lanes;
    row_of_block = int(threadIdx.x >> unsigned(shape.shift));
    lane = int(threadIdx.x) - row_of_block * lanes;
    row = int64_t(blockIdx.x) * shape.rows + row_of_block;
    first = row * cols;
    in = row < args.rows;
  }
  __device__ int64_t column(int pack) const { return (int64_t(pack) * lanes + lane) * kWidth; }
};

/// The sum over the threads of each row, in all of them. The whole block must call it, once.
__device__ float row_sum(float value, const Place& place) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0u, value, offset);
    if (offset < place.lanes) value += other;
  }
  if (place.lanes <= kWarp) return value;
  __shared__ float sums[kMostThreads / kWarp];
  const int warps = place.lanes / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? sums[place.row_of_block * warps + lane] : 0.f);
}

template <class X>
__device__ void add_to(Pack<X, kWidth>& x, const Pack<X, kWidth>& delta) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x.value[i] = X(x.get(i) + delta.get(i));
}

template <class X>
__device__ float squares(const Pack<X, kWidth>& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum += x.get(i) * x.get(i);
  return sum;
}

template <class Y, class X, class W>
__device__ Pack<Y, kWidth> normed(const Pack<X, kWidth>& x, const Pack<W, kWidth>& w, float rstd) {
  Pack<Y, kWidth> y;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.value[i] = Y(w.get(i) * (x.get(i) * rstd));
  return y;
}

template <class X, class Y, class W>
__device__ float dot(const Pack<X, kWidth>& x, const Pack<Y, kWidth>& dy,
                     const Pack<W, kWidth>& w) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum += w.get(i) * dy.get(i) * x.get(i);
  return sum;
}

/// x becomes dx; `beside` is dsum if given.
template <class X, class Y, class W>
__device__ void turn_to_dx(Pack<X, kWidth>& x, const Pack<Y, kWidth>& dy, const Pack<W, kWidth>& w,
                           const Pack<X, kWidth>& beside, bool has_beside, float rstd,
                           float shrink) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float share = rstd * (w.get(i) * dy.get(i) - x.get(i) * shrink);
    x.value[i] = X(has_beside ? beside.get(i) + share : share);
  }
}

__device__ float rstd_of(float squares, Shape shape, float eps) {
  return rsqrtf(squares * shape.inverse_cols + eps);
}

__device__ float shrink_of(float dot, float rstd, Shape shape) {
  return rstd * rstd * (dot * shape.inverse_cols);
}

// ------------------------------------------------------------------------------------------------
// Aligned rows that fit into the registers of their threads: each array is read once, and all loads
// of a thread are issued before the first is waited for.

/// A thread's packs of one array.
template <class T>
struct Held {
  Pack<T, kWidth> pack[kPacks];

  /// from, to: the row's first element.
  __device__ void load(const T* from, const Place& place) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      pack[p].load(from + place.column(p), live(place, p), /*wide=*/true);
  }
  __device__ void store(T* to, const Place& place) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      pack[p].store(to + place.column(p), live(place, p), /*wide=*/true);
  }

 private:
  static __device__ int live(const Place& place, int pack) {  // all of a pack, or 0
    return place.in && place.column(pack) < place.cols ? kWidth : 0;
  }
};

template <class X, class Y, class W>
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(RmsNormArgs args, Shape shape, const X* delta, X* sum, Y* y) {
  const Place place(args, shape);
  Held<X> s, more;
  Held<W> w;
  s.load(static_cast<const X*>(args.x) + place.first, place);
  if (delta != nullptr) more.load(delta + place.first, place);
  float total = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (delta != nullptr) add_to(s.pack[p], more.pack[p]);
    total += squares(s.pack[p]);
  }
  if (delta != nullptr) s.store(sum + place.first, place);
  w.load(static_cast<const W*>(args.w), place);  // from the caches, while the row is summed
  const float rstd = rstd_of(row_sum(total, place), shape, args.eps);
  if (place.in && place.lane == 0) args.rstd[place.row] = rstd;
  Held<Y> out;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) out.pack[p] = normed<Y>(s.pack[p], w.pack[p], rstd);
  out.store(y + place.first, place);
}

/// Resident blocks of the largest size per SM: two leave a thread 64 registers, enough for
/// bfloat16.
template <class... T>
constexpr int kBlocks = (std::is_same_v<T, __nv_bfloat16> && ...) ? 2 : 1;

template <class X, class Y, class W>
__global__ void __launch_bounds__(kMostThreads, kBlocks<X, Y, W>)
    backward_kernel(RmsNormArgs args, Shape shape, const Y* dy, const X* dsum, X* dx) {
  const Place place(args, shape);
  Held<X> x, beside;
  Held<Y> grad;
  Held<W> w;
  x.load(static_cast<const X*>(args.x) + place.first, place);
  grad.load(dy + place.first, place);
  if (dsum != nullptr) beside.load(dsum + place.first, place);
  w.load(static_cast<const W*>(args.w), place);
  const float rstd = place.in ? args.rstd[place.row] : 0.f;
  float total = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) total += dot(x.pack[p], grad.pack[p], w.pack[p]);
  const float shrink = shrink_of(row_sum(total, place), rstd, shape);
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    turn_to_dx(x.pack[p], grad.pack[p], w.pack[p], beside.pack[p], dsum != nullptr, rstd, shrink);
  x.store(dx + place.first, place);
}

// ------------------------------------------------------------------------------------------------
// Rows of any width and alignment: they are read twice, the second time from the caches.

/// The number of elements of pack p.
__device__ int live_of(const Place& place, int pack) {
  const int64_t left = place.in ? place.cols - place.column(pack) : 0;
  return left < 0 ? 0 : left < kWidth ? int(left) : kWidth;
}

template <class X, class Y, class W>
__global__ void __launch_bounds__(kMostThreads)
    forward_any_kernel(RmsNormArgs args, Shape shape, const X* delta, X* sum, Y* y, bool wide) {
  const Place place(args, shape);
  const X* from = static_cast<const X*>(args.x) + place.first;
  float total = 0;
  for (int p = 0; live_of(place, p) > 0; ++p) {
    const int live = live_of(place, p);
    const int64_t at = place.column(p);
    Pack<X, kWidth> s;
    s.load(from + at, live, wide);
    if (delta != nullptr) {
      Pack<X, kWidth> more;
      more.load(delta + place.first + at, live, wide);
      add_to(s, more);
      s.store(sum + place.first + at, live, wide);
    }
    total += squares(s);
  }
  const float rstd = rstd_of(row_sum(total, place), shape, args.eps);
  if (place.in && place.lane == 0) args.rstd[place.row] = rstd;
  if (delta != nullptr) from = sum + place.first;  // each thread reads what it wrote itself
  for (int p = 0; live_of(place, p) > 0; ++p) {
    const int live = live_of(place, p);
    const int64_t at = place.column(p);
    Pack<X, kWidth> s;
    Pack<W, kWidth> w;
    s.load(from + at, live, wide);
    w.load(static_cast<const W*>(args.w) + at, live, wide);
    normed<Y>(s, w, rstd).store(y + place.first + at, live, wide);
  }
}

template <class X, class Y, class W>
__global__ void __launch_bounds__(kMostThreads)
    backward_any_kernel(RmsNormArgs args, Shape shape, const Y* dy, const X* dsum, X* dx,
                        bool wide) {
  const Place place(args, shape);
  const auto load = [&](int p, auto& x, auto& grad, auto& w) {
    const int live = live_of(place, p);
    const int64_t at = place.column(p);
    x.load(static_cast<const X*>(args.x) + place.first + at, live, wide);
    grad.load(dy + place.first + at, live, wide);
    w.load(static_cast<const W*>(args.w) + at, live, wide);
  };
  Pack<X, kWidth> x, beside;
  Pack<Y, kWidth> grad;
  Pack<W, kWidth> w;
  float total = 0;
  for (int p = 0; live_of(place, p) > 0; ++p) {
    load(p, x, grad, w);
    total += dot(x, grad, w);
  }
  const float rstd = place.in ? args.rstd[place.row] : 0.f;
  const float shrink = shrink_of(row_sum(total, place), rstd, shape);
  for (int p = 0; live_of(place, p) > 0; ++p) {
    const int live = live_of(place, p);
    const int64_t at = place.first + place.column(p);
    load(p, x, grad, w);
    if (dsum != nullptr) beside.load(dsum + at, live, wide);
    turn_to_dx(x, grad, w, beside, dsum != nullptr, rstd, shrink);
    x.store(dx + at, live, wide);
  }
}

// ------------------------------------------------------------------------------------------------

/// Whether every row of the arrays can be read in packs. This is a property of the call, so all
/// threads take the same path. Null is aligned.
template <class X, class Y, class W>
bool rows_aligned(const RmsNormArgs& args, const X* beside, const X* out, const Y* y) {
  return args.cols % kWidth == 0 &&
         all_aligned<kWidth>(static_cast<const X*>(args.x), static_cast<const W*>(args.w), beside,
                             out, y);
}

/// Calls held(args, shape, arrays...) if possible, else any(args, shape, arrays..., wide).
template <class HeldKernel, class AnyKernel, class... Arrays>
void launch_rows(const char* what, HeldKernel held, AnyKernel any, Stream stream,
                 const RmsNormArgs& args, bool wide, const Arrays&... arrays) {
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // more rows than fit into memory
  const Shape shape = shape_of(args.cols);
  const unsigned blocks = grid_size(args.rows, shape.rows, kMostBlocks);
  const unsigned threads = unsigned(shape.lanes * shape.rows);
  if (wide && args.cols <= kMostHeld) {
    launch(what, held, blocks, threads, stream, args, shape, arrays...);
  } else {
    launch(what, any, blocks, threads, stream, args, shape, arrays..., wide);
  }
}

/// Calls body(X{}, Y{}, W{}) for the types of the call; FP16 is only combined with FP16.
template <class Body>
void with_types(const RmsNormArgs& args, const Body& body) {
  with_type(args.x_type, [&](auto x) {
    with_type(args.y_type, [&](auto y) {
      constexpr bool half_x = std::is_same_v<decltype(x), __half>,
                     half_y = std::is_same_v<decltype(y), __half>;
      if constexpr (half_x == half_y) {
        with_type(args.w_type, [&](auto w) { body(x, y, w); });
      } else {
        throw Error(ErrorKind::kInternal, "rms_norm: FP16 goes with FP16 only");
      }
    });
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args, const void* delta, void* sum, void* y, Stream stream) {
  if (args.rows == 0 || args.cols == 0) return;
  with_types(args, [&](auto x_type, auto y_type, auto w_type) {
    using X = decltype(x_type);
    using Y = decltype(y_type);
    using W = decltype(w_type);
    const auto* more = static_cast<const X*>(delta);
    auto* total = static_cast<X*>(sum);
    auto* out = static_cast<Y*>(y);
    const bool wide = rows_aligned<X, Y, W>(args, more, total, out);
    launch_rows("rms_norm launch", forward_kernel<X, Y, W>, forward_any_kernel<X, Y, W>, stream,
                args, wide, more, total, out);
  });
}

void rms_norm_backward(const RmsNormArgs& args, const void* dy, const void* dsum, void* dx,
                       Stream stream) {
  if (args.rows == 0 || args.cols == 0) return;
  with_types(args, [&](auto x_type, auto y_type, auto w_type) {
    using X = decltype(x_type);
    using Y = decltype(y_type);
    using W = decltype(w_type);
    const auto* beside = static_cast<const X*>(dsum);
    const auto* grad = static_cast<const Y*>(dy);
    auto* out = static_cast<X*>(dx);
    const bool wide = rows_aligned<X, Y, W>(args, beside, out, grad);
    launch_rows("rms_norm backward launch", backward_kernel<X, Y, W>, backward_any_kernel<X, Y, W>,
                stream, args, wide, grad, beside, out);
  });
}

}  // namespace lft
