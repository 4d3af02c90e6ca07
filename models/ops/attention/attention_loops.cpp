// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/attention/attention_loops.h"

#include <cmath>
#include <cstring>

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

/// The keys visible to a query: whole tiles, and `rest` keys of one more.
struct Seen {
  int64_t tiles, rest;
};
LFT_INLINE Seen seen_keys(int64_t keys, int64_t query, bool causal) {
  const int64_t count = causal && query + 1 < keys ? query + 1 : keys;
  return {count / kTile, count % kTile};
}

LFT_INLINE void attention_softmax_rows(const float* s, Bf16* p, const QueryRows& rows, float scale,
                                       float* inverse, float* lse) {
  for (int64_t q = 0; q < kTile; ++q, s += kTile, p += kTile) {
    const Seen seen = seen_keys(rows.keys, rows.first + q, rows.causal);
    const float* last = s + seen.tiles * kTile * kTile;
    float top = seen.tiles > 0 ? *s : *last;
    for (int64_t tile = 0; tile < seen.tiles; ++tile) {
      const float* row = s + tile * kTile * kTile;
#pragma omp simd reduction(max : top)
      for (int64_t k = 0; k < kTile; ++k) top = row[k] > top ? row[k] : top;
    }
    for (int64_t k = 0; k < seen.rest; ++k) top = last[k] > top ? last[k] : top;
    float sum = 0;
    for (int64_t tile = 0; tile < seen.tiles; ++tile) {
      const float* row = s + tile * kTile * kTile;
      Bf16* to = p + tile * kTile * kTile;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < kTile; ++k) {
        const float value = fast_exp(scale * (row[k] - top));
        sum += value;
        store(to + k, value);
      }
    }
    if (seen.rest > 0) {
      Bf16* to = p + seen.tiles * kTile * kTile;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < kTile; ++k) {
        const float all = fast_exp(scale * (last[k] - top)), value = k < seen.rest ? all : 0.0f;
        sum += value;
        store(to + k, value);
      }
    }
    inverse[q] = 1.0f / sum;
    lse[q] = scale * top + std::log(sum);
  }
}

/// The first query of the tile that sees the key; kTile: none does.
LFT_INLINE int64_t first_seeing(int64_t key, int64_t keys, bool diagonal) {
  return key >= keys ? kTile : diagonal ? key : 0;
}

LFT_INLINE void pair_rows_tile(const Bf16* x, Bf16* y, int64_t width) {
  for (int64_t r = 0; r < kTile; r += 2, x += 2 * width, y += 2 * width) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      y[2 * c].x = x[c].x;
      y[2 * c + 1].x = x[width + c].x;
    }
  }
}

LFT_INLINE void attention_tile_backward_rows(const TileScores& of, int64_t keys, bool diagonal,
                                             float scale, const TileGradients& to) {
  const float *s = of.s, *dp = of.dp, *lse = of.lse, *delta = of.delta;
  Bf16 *p = to.p, *ds = to.ds;
  for (int64_t k = 0; k < kTile; ++k) {
    const int64_t from = first_seeing(k, keys, diagonal);
    const float *s_q = s + k * kTile, *dp_q = dp + k * kTile;
    Bf16 *p_q = p + k * kTile, *ds_q = ds + k * kTile;
#pragma omp simd
    for (int64_t q = 0; q < kTile; ++q) {
      const float all = fast_exp(scale * s_q[q] - lse[q]);
      const float slope = scale * all * (dp_q[q] - delta[q]);
      store(p_q + q, q >= from ? all : 0.0f);
      store(ds_q + q, q >= from ? slope : 0.0f);
    }
  }
  pair_rows_tile(ds, to.ds_pairs, kTile);
}

LFT_INLINE void attention_row_dots_rows(const Bf16* a, const Bf16* b, float* dots, int64_t width) {
  for (int64_t r = 0; r < kTile; ++r, a += width, b += width) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; ++c) dot += load(a + c) * load(b + c);
    dots[r] = dot;
  }
}

LFT_INLINE void pair_columns_tile(const Bf16* x, Bf16* y, int64_t width) {
  for (int64_t c = 0; c < width; c += 2) {
    for (int64_t r = 0; r < kTile; ++r)
      std::memcpy(y + c * kTile + 2 * r, x + r * width + c, 2 * sizeof(Bf16));
  }
}

LFT_INLINE void transpose_tile_rows(const Bf16* x, Bf16* y, int64_t width) {
  for (int64_t c = 0; c < width; ++c) {
    for (int64_t r = 0; r < kTile; ++r) y[c * kTile + r].x = x[r * width + c].x;
  }
}

LFT_INLINE void store_rows_tile(const float* x, const float* factor, Bf16* y, int64_t rows,
                                int64_t width, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float by = factor == nullptr ? 1.0f : factor[r];
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) store(y + r * stride + c, x[r * width + c] * by);
  }
}

LFT_INLINE void store_columns_tile(const float* x, Bf16* y, int64_t rows, int64_t width,
                                   int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) store(y + r * stride + c, x[c * kTile + r]);
  }
}

}  // namespace

LFT_CLONES void attention_softmax(const float* s, Bf16* p, const QueryRows& rows, float scale,
                                  float* inverse, float* lse) {
  attention_softmax_rows(s, p, rows, scale, inverse, lse);
}
LFT_CLONES void pair_rows(const Bf16* x, Bf16* y, int64_t width) { pair_rows_tile(x, y, width); }
LFT_CLONES void attention_tile_backward(const TileScores& of, int64_t keys, bool diagonal,
                                        float scale, const TileGradients& to) {
  attention_tile_backward_rows(of, keys, diagonal, scale, to);
}
LFT_CLONES void attention_row_dots(const Bf16* a, const Bf16* b, float* dots, int64_t width) {
  attention_row_dots_rows(a, b, dots, width);
}
LFT_CLONES void pair_columns(const Bf16* x, Bf16* y, int64_t width) {
  pair_columns_tile(x, y, width);
}
LFT_CLONES void transpose_tile(const Bf16* x, Bf16* y, int64_t width) {
  transpose_tile_rows(x, y, width);
}
LFT_CLONES void store_rows(const float* x, const float* factor, Bf16* y, int64_t rows,
                           int64_t width, int64_t stride) {
  store_rows_tile(x, factor, y, rows, width, stride);
}
LFT_CLONES void store_columns(const float* x, Bf16* y, int64_t rows, int64_t width,
                              int64_t stride) {
  store_columns_tile(x, y, rows, width, stride);
}

}  // namespace lft::ops::loops
