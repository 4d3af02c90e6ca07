#include "src/text/pipeline/byte_level.h"

#include <array>

#include "src/text/pipeline/aligned.h"

namespace lft::text {
namespace {

struct Table {
  std::array<std::string, 256> chars;
  std::array<int, 324> bytes;
  Table() {
    bytes.fill(-1);
    uint32_t spare = 256;  // unprintable bytes use the code points from here on, in order
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t code = prints ? byte : spare++;
      utf8_append(chars[byte], code);
      bytes[code] = int(byte);
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

const std::string& byte_to_char(unsigned char byte) { return table().chars[byte]; }

int char_to_byte(uint32_t code_point) {
  return code_point < table().bytes.size() ? table().bytes[code_point] : -1;
}

}  // namespace lft::text
