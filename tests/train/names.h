// What the tests of src/train use by short names.
#pragma once

namespace lft::data {}
namespace lft::hf {}
namespace lft::io {}
namespace lft::layers {}
namespace lft::family {}
namespace lft::llava {}
namespace lft::lora {}
namespace lft::ops {}
namespace lft::recipe {}
namespace lft::train {}

namespace lft::test {
using namespace lft::data;
using namespace lft::hf;
using namespace lft::io;
using namespace lft::layers;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::recipe;
using namespace lft::train;
}  // namespace lft::test
