// Small checkpoints with known values, and ways to damage their files.
#pragma once
#include <ATen/ATen.h>

#include <fstream>

#include "src/checkpoint/checkpoint.h"
#include "src/io/files.h"
#include "support/expect_error.h"
#include "support/slurp.h"
#include "support/temp_dir.h"

namespace lft::test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;

inline Recipe small_recipe() {
  Recipe recipe;
  recipe.output_dir = "runs/a";
  recipe.model.path = "base";
  recipe.data.train = "rows.json";
  recipe.train.grad_accum = 1;  // a run saves the resolved value of auto
  recipe.data.chat_template = "llava-v1";
  recipe.data.image_fit = "pad";
  return recipe;
}

/// Every stored type, a scalar, an empty tensor, a non-contiguous tensor, and numbers at
/// the limits of F32. Differs by step.
inline Checkpoint small_checkpoint(int64_t step) {
  const auto counted = [&](at::IntArrayRef shape, double scale) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return ((at::arange(count, at::kFloat) + static_cast<double>(step)) * scale).reshape(shape);
  };
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.run_id = "20250131-235959-1a2b3c4d";
  checkpoint.trainables = {
      {"layers.0.lora_A", counted({3, 5}, 0.1)},
      {"layers.0.lora_B", counted({5, 3}, -1e-3).t()},
      {"layers.1.half", counted({7}, 0.25).to(at::kHalf)},
      {"layers.1.brain", counted({9}, 3.0).to(at::kBFloat16)},
      {"edges", at::tensor({3.4028235e38f, -3.4028235e38f, 1.4e-45f, -0.0f}, at::kFloat)},
      {"scalar", at::scalar_tensor(static_cast<double>(step), at::kFloat)},
      {"none", at::empty({0, 4}, at::kFloat)}};
  checkpoint.moments = {{"exp_avg.layers.0.lora_A", counted({3, 5}, 1e-8)},
                        {"exp_avg_sq.layers.0.lora_A", counted({3, 5}, 1e-16)}};
  checkpoint.state = {{"scale", 65536.0},
                      {"tenth", 0.1},
                      {"seed", UINT64_MAX},
                      {"metrics_offset", 1000 * step},
                      {"skipped", {"a", "b"}}};
  checkpoint.identity = {{"base", "b0"}, {"data", "d0"}, {"tokenizer", "t0"}, {"world_size", 1}};
  checkpoint.environment = {
      {"lft", "0.1.0"}, {"libtorch", "2.11.0"}, {"cpu", "one"}, {"threads", 2}};
  checkpoint.recipe = dump_recipe(small_recipe());
  return checkpoint;
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline void expect_same_tensors(const std::map<std::string, at::Tensor>& found,
                                const std::map<std::string, at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    const at::Tensor host = tensor.contiguous(), &got = found.at(name);
    ASSERT_EQ(got.scalar_type(), host.scalar_type()) << name;
    ASSERT_EQ(got.sizes(), host.sizes()) << name;
    EXPECT_EQ(host.nbytes() == 0
                  ? 0
                  : std::memcmp(got.const_data_ptr(), host.const_data_ptr(), host.nbytes()),
              0)
        << name;
  }
}

/// Compares bits, not values: -0 differs from 0.
inline void expect_same(const Checkpoint& found, const Checkpoint& wanted) {
  EXPECT_EQ(found.step, wanted.step);
  EXPECT_EQ(found.run_id, wanted.run_id);
  expect_same_tensors(found.trainables, wanted.trainables);
  expect_same_tensors(found.moments, wanted.moments);
  EXPECT_EQ(found.state, wanted.state);
  EXPECT_EQ(found.identity, wanted.identity);
  EXPECT_EQ(found.environment, wanted.environment);
  EXPECT_EQ(found.recipe, wanted.recipe);
}

/// Names in `dir`, including hidden ones.
inline std::vector<std::string> names_in(const std::string& dir) { return list_dir(dir); }

}  // namespace lft::test
