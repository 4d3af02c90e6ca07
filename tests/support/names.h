// The names of the product's rooms in one, for tests that use several of them.
#pragma once

namespace lft {
namespace checkpoint {}
namespace clip {}
namespace data {}
namespace debug {}
namespace hf {}
namespace infer {}
namespace io {}
namespace layers {}
namespace llama {}
namespace llava {}
namespace lora {}
namespace ops {}
namespace recipe {}
namespace report {}
namespace text {}
namespace train {}

namespace names {
using namespace checkpoint;
using namespace clip;
using namespace data;
using namespace debug;
using namespace hf;
using namespace infer;
using namespace io;
using namespace layers;
using namespace llama;
using namespace llava;
using namespace lora;
using namespace ops;
using namespace recipe;
using namespace report;
using namespace text;
using namespace train;
}  // namespace names
}  // namespace lft
