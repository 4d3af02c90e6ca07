// The prefixes of canonical names by part of the model, the same in every family.
#pragma once

namespace lft::family {

constexpr char kVision[] = "vision_tower.";              // the vision tower
constexpr char kProjector[] = "multi_modal_projector.";  // the projector to the decoder
constexpr char kDecoder[] = "language_model.";           // the decoder

}  // namespace lft::family
