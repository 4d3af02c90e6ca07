// The loops between the products of tiled attention, on raw pointers, as in cpu_loops.h:
// single-threaded, compiled for AVX-512, AVX2 and baseline.
#pragma once
#include "models/ops/core/cpu_loops.h"

namespace lft::ops::loops {

/// Attention in tiles of kTile by kTile positions. `keys`: the number of keys; the rest of the last
/// tile is ignored.
constexpr int64_t kTile = 64;
/// The rows of a tile of queries, as the left operand of the product with the values: p = exp(scale
/// (s - top)), 0 for invisible keys, top = max s over visible keys; inverse = 1 / sum p before
/// rounding, lse = scale top + log(sum p). s, p: [tiles of keys, kTile queries, kTile keys]; with
/// `causal`, query q sees the keys up to first + q, and the tiles end there.
struct QueryRows {
  int64_t keys, first;
  bool causal;
};
void attention_softmax(const float* s, Bf16* p, const QueryRows& rows, float scale, float* inverse,
                       float* lse);
/// One tile [kTile keys, kTile queries] of the backward pass: p = exp(scale s - lse), ds = scale p
/// (dp - delta), both 0 if the query does not see the key: keys from `keys` on and, with
/// `diagonal`, those after the query. lse, delta: one per query. ds_pairs: ds with keys 2k and 2k +
/// 1 adjacent, [kTile / 2, kTile queries, 2].
struct TileScores {
  const float *s, *dp, *lse, *delta;
};
struct TileGradients {
  Bf16 *p, *ds, *ds_pairs;
};
void attention_tile_backward(const TileScores& of, int64_t keys, bool diagonal, float scale,
                             const TileGradients& to);
/// sum_e(a b) of each of kTile rows.
void attention_row_dots(const Bf16* a, const Bf16* b, float* dots, int64_t width);
/// A tile x [kTile, width] as another operand of a product. width is even.
void pair_rows(const Bf16* x, Bf16* y,
               int64_t width);  // y[r, c, i] = x[2 r + i, c]: x as a right operand
void pair_columns(const Bf16* x, Bf16* y,
                  int64_t width);  // y[c, r, i] = x[r, 2 c + i]: x^T as a right operand
void transpose_tile(const Bf16* x, Bf16* y, int64_t width);  // y[c, r] = x[r, c]
/// y[r, c] = x[r, c] * factor[r] over `rows` rows of width `width`; y has row stride `stride`.
void store_rows(const float* x, const float* factor, Bf16* y, int64_t rows, int64_t width,
                int64_t stride);
/// y[r, c] = x[c, r] of x [width, kTile].
void store_columns(const float* x, Bf16* y, int64_t rows, int64_t width, int64_t stride);

}  // namespace lft::ops::loops
