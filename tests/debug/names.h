// Short names used by the tests of src/debug.
#pragma once
#include <filesystem>

namespace lft::data {}
namespace lft::debug {}
namespace lft::io {}
namespace lft::recipe {}
namespace lft::train {}

namespace lft::test {
using namespace lft::data;
using namespace lft::debug;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace fs = std::filesystem;
}  // namespace lft::test
