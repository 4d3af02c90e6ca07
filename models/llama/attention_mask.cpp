#include "models/llama/attention_mask.h"

#include <ATen/ATen.h>

#include <limits>

#include "models/base/dims.h"
#include "models/ops/core/copy_to_device.h"

namespace lft::llama {

at::Tensor attention_mask(const SeenPositions& seen, int64_t positions, at::ScalarType type,
                          at::Device device) {
  const bool slides = seen.window > 0 && seen.window < positions;
  const bool blocks = seen.blocks_nt.defined() && (seen.blocks_nt >= 0).any().item<bool>();
  if (!slides && !blocks) return {};
  const at::Tensor place = at::arange(positions, at::TensorOptions(at::kLong).device(device)),
                   from = place.unsqueeze(1), to = place.unsqueeze(0);
  at::Tensor hidden = (to > from).unsqueeze(0);
  if (blocks) {
    expect_dims(seen.blocks_nt, "blocks", {{"n"}, {"t", positions}});
    const at::Tensor block = ops::copy_to_device(seen.blocks_nt, device);
    const at::Tensor own = block.unsqueeze(2), other = block.unsqueeze(1);
    hidden = hidden.bitwise_and((own != other).bitwise_or_(own < 0));
  }
  if (slides) hidden = hidden.bitwise_or(to <= from - seen.window);
  return at::zeros({hidden.size(0), positions, mask_row(positions)},
                   at::TensorOptions(type).device(device))
      .narrow(2, 0, positions)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(1);
}

}  // namespace lft::llama
