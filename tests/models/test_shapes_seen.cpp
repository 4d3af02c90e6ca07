// The shapes that ops receive, where a GPU plans or tiles by them. Recorded with LibTorch's
// observers, on the CPU and without data.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <set>
#include <vector>

#include "models/ops/attention/attention.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/tiny.h"

namespace lft::test::shapes_seen_test {
namespace {

std::set<int64_t> key_lengths;  // key lengths of attention calls
int64_t vocabulary = 0;
std::vector<int64_t> rows_of_logits;  // rows of products with this many columns

std::unique_ptr<at::ObserverContext> note_shapes(const at::RecordFunction& fn) {
  const std::string op = fn.name();
  const auto in = fn.inputs();
  if (op.ends_with("::scaled_dot_product_attention")) key_lengths.insert(in[1].toTensor().size(2));
  if (op == "aten::mm" && in[1].toTensor().size(1) == vocabulary)
    rows_of_logits.push_back(in[0].toTensor().size(0));
  return nullptr;
}

class ShapesSeen : public ::testing::Test {
 protected:
  void SetUp() override {
    key_lengths.clear();
    rows_of_logits.clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&note_shapes)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  void TearDown() override { at::removeCallback(handle_); }

 private:
  at::CallbackHandle handle_{};
};

TEST_F(ShapesSeen, AGenerationAttendsToKeysInStepsOf256) {
  const at::NoGradGuard no_grad;
  family::ModelConfig config = tiny_config();
  config.text.max_positions = 512;
  Model model = make_llava(config);
  std::vector<int64_t> ids = {1, 20, 21, 22};
  family::Batch batch;
  batch.input_ids_bt = at::tensor(ids, at::kLong).unsqueeze(0);
  KvCache cache;
  key_lengths.clear();
  at::Tensor logits = model->next_logits(batch, cache);
  EXPECT_EQ(key_lengths, std::set<int64_t>({4}));
  key_lengths.clear();
  for (int64_t step = 0; step < 300; ++step) {
    ids.push_back(step * 7 % 50);
    batch.input_ids_bt = at::full({1, 1}, ids.back(), at::kLong);
    logits = model->next_logits(batch, cache);
  }
  EXPECT_EQ(key_lengths, std::set<int64_t>({256, 512}));
  batch.input_ids_bt = at::tensor(ids, at::kLong).unsqueeze(0);
  const at::Tensor whole = model->all_logits(batch)[0][static_cast<int64_t>(ids.size()) - 1];
  // Logits of about 1 from float32 sums in another order, as in CacheStepsEqualTheWholePass.
  EXPECT_LT(max_abs_diff(logits[0], whole), 2e-4);
}

TEST(MaskedTail, HasAWeightOfZero) {
  at::manual_seed(3);
  constexpr int64_t kSeen = 50, kAll = 256;
  const at::Tensor q = at::randn({2, 4, 1, 16}), k = at::randn({2, 4, kSeen, 16}),
                   v = at::randn({2, 4, kSeen, 16});
  const at::Tensor tail = at::full({2, 4, kAll - kSeen, 16}, 1e4);  // would be seen for any weight
  const at::Tensor positions = at::arange(kAll), mask = (positions < kSeen).view({1, 1, 1, kAll});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto typed = [type](const at::Tensor& x) { return x.to(type); };
    const at::Tensor want =
        attention(typed(q), typed(k), typed(v), mask.narrow(3, 0, kSeen), false).to(at::kFloat);
    const at::Tensor got = attention(typed(q), at::cat({typed(k), typed(tail)}, 2),
                                     at::cat({typed(v), typed(tail)}, 2), mask, false)
                               .to(at::kFloat);
    // A mean of 50 values in another order: 50 roundings of float32, and one of the result's type
    // if the two are on different sides of a step.
    const double rounding = type == at::kFloat ? 0 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
    EXPECT_LE(max_abs_diff(got, want), v.abs().max().item<double>() * (kSeen * 0x1p-24 + rounding))
        << c10::toString(type);
  }
}

TEST_F(ShapesSeen, TheHeadsChunksAreAThousandRowsOffTheCpu) {
  const auto rows = [](at::Device device, int64_t count, int64_t vocab) {
    vocabulary = vocab;
    rows_of_logits.clear();
    const at::Tensor h = at::zeros({count, 1}, device), w = at::zeros({vocab, 1}, device);
    const at::NoGradGuard no_grad;
    EXPECT_EQ(token_logprobs(h, w, at::zeros({count}, h.options().dtype(at::kLong))).size(0),
              count);
    return rows_of_logits;
  };
  for (const int64_t vocab : {32064, 152064, 262208})  // every chunk reads the whole head
    EXPECT_EQ(rows(at::kMeta, 2100, vocab), std::vector<int64_t>({1024, 1024, 52})) << vocab;
  // On a CPU 2^23 logits: 261 rows of a vocabulary of 32,064.
  EXPECT_EQ(rows(at::kCPU, 600, 32064),
            std::vector<int64_t>({261, 261, 78}));  // a CPU's results keep their bits
}

}  // namespace
}  // namespace lft::test::shapes_seen_test
