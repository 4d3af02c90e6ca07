#include "src/data/rows/tar.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::data {
namespace {

constexpr uint64_t kMostLong = 1 << 20;  // bytes of a long name or a pax header
using Block = std::array<char, kTarBlock>;

/// A header's fields: offset and size.
struct TarField {
  size_t begin, size;
};
constexpr TarField kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kPrefix{345, 155};
constexpr size_t kTypeAt = 156, kMagicAt = 257;

uint64_t padded(uint64_t bytes) { return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock; }

std::string field_text(std::string_view block, TarField field) {
  const std::string_view text = block.substr(field.begin, field.size);
  return std::string(text.substr(0, std::min(text.find('\0'), text.size())));
}

/// Octal digits, or GNU's base 256; false for anything else.
bool field_number(std::string_view block, TarField field, uint64_t* out) {
  const std::string_view text = block.substr(field.begin, field.size);
  *out = 0;
  if ((static_cast<unsigned char>(text[0]) & 0x80) != 0) {
    for (size_t i = 1; i < text.size(); ++i) {
      if (*out >> 55 != 0) return false;
      *out = *out << 8 | static_cast<unsigned char>(text[i]);
    }
    return text[0] == '\x80';
  }
  size_t at = text.find_first_not_of(' ');
  bool any = false;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '7'; ++at, any = true)
    *out = *out << 3 | static_cast<uint64_t>(text[at] - '0');
  return any && (at == text.size() || text[at] == ' ' || text[at] == '\0');
}

/// Sum of all bytes, with the checksum field counted as spaces.
uint64_t header_sum(std::string_view block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool own = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.size;
    sum += own ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

bool is_empty(std::string_view block) {
  return block.find_first_not_of('\0') == std::string_view::npos;
}

}  // namespace

bool is_tar(std::string_view head) {
  uint64_t sum = 0;
  return head.size() >= kTarBlock && !is_empty(head.substr(0, kTarBlock)) &&
         field_number(head, kChecksum, &sum) && sum == header_sum(head);
}

TarReader::TarReader(const io::FileHandle& file, uint64_t at, uint64_t end)
    : file_(file), size_(file.size()), end_(end), at_(at) {}

void TarReader::broken(const std::string& what, const std::string& found) const {
  refuse(ErrorKind::kInput, what, file_.path() + ", byte " + std::to_string(at_), found, {},
         "create the tar file again");
}

bool TarReader::next(TarMember& member) {
  Override over;
  member.header = at_;
  while (at_ < end_) {
    if (size_ - std::min(size_, at_) < kTarBlock)
      broken("the tar file is cut: it has no end", std::to_string(size_) + " bytes");
    Block block;
    file_.read_at(at_, block.data(), block.size());
    const std::string_view head(block.data(), block.size());
    if (is_empty(head)) {
      check_end();
      return false;
    }
    if (!is_tar(head)) broken("no header of a tar file", quote_text(field_text(head, kName), 60));
    uint64_t bytes = 0;
    if (!field_number(head, kSize, &bytes)) broken("a member of a tar file without a size");
    const char type = head[kTypeAt];
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file && over.has_bytes) bytes = over.bytes;
    const uint64_t content = at_ + kTarBlock;
    if (bytes > size_ - content) {
      broken("the tar file is cut within a member",
             quote_text(over.name.empty() ? field_text(head, kName) : over.name, 80) + " of " +
                 std::to_string(bytes) + " bytes, of which " + std::to_string(size_ - content) +
                 " are there");
    }
    if (type == 'L') over.name = read_long(bytes, "a name");
    if (type == 'x') read_pax(bytes, over);
    if (is_file) {
      const bool ustar = head.substr(kMagicAt, 6) == std::string_view("ustar\0", 6);
      const std::string prefix = ustar ? field_text(head, kPrefix) : "";
      member.name = !over.name.empty() ? over.name
                    : prefix.empty()   ? field_text(head, kName)
                                       : prefix + "/" + field_text(head, kName);
      member.offset = content;
      member.bytes = bytes;
    } else if (std::string_view("LxgK5").find(type) == std::string_view::npos) {
      broken("a member of a tar file that is no regular file",
             quote_text(field_text(head, kName), 80) + " of type " +
                 quote_text(std::string_view(&type, 1)));
    }
    at_ = content + padded(bytes);
    if (is_file) return true;
    if (type == '5') {
      over = {};
      member.header = at_;
    }
  }
  return false;
}

std::string TarReader::read_long(uint64_t bytes, const char* what) {
  if (bytes > kMostLong)
    broken(std::string(what) + " of a tar file that is too long", std::to_string(bytes) + " bytes");
  std::string text(bytes, '\0');
  file_.read_at(at_ + kTarBlock, text.data(), text.size());
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

/// Parses records of the form "<length> <key>=<value>\n".
void TarReader::read_pax(uint64_t bytes, Override& over) {
  if (bytes > kMostLong)
    broken("a pax header of a tar file that is too long", std::to_string(bytes) + " bytes");
  std::string text(bytes, '\0');
  file_.read_at(at_ + kTarBlock, text.data(), text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t space = text.find(' ', at);
    const std::string digits = text.substr(at, std::min(space, text.size()) - at);
    const bool number = !digits.empty() && digits.size() < 8 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    const size_t length = number ? std::stoull(digits) : 0;
    const size_t equals = space == std::string::npos ? space : text.find('=', space);
    if (length == 0 || length > text.size() - at || equals >= at + length)
      broken("a pax header of a tar file that is malformed");
    const std::string key = text.substr(space + 1, equals - space - 1),
                      value = text.substr(equals + 1, at + length - equals - 2);
    if (key == "path") over.name = value;
    if (key == "size") {
      if (value.empty() || value.size() > 18 ||
          value.find_first_not_of("0123456789") != std::string::npos)
        broken("a pax header of a tar file that is malformed", quote_text(value, 40));
      over.bytes = std::stoull(value);
      over.has_bytes = true;
    }
    if (key.starts_with("GNU.sparse.")) broken("a sparse file in a tar file");
    at += length;
  }
}

/// After the first empty block, the file contains only empty blocks.
void TarReader::check_end() {
  constexpr uint64_t kPiece = 1 << 20;
  std::string piece;
  for (uint64_t at = at_; at < size_; at += kPiece) {
    piece.resize(std::min(kPiece, size_ - at));
    file_.read_at(at, piece.data(), piece.size());
    if (is_empty(piece)) continue;
    at_ = at;
    broken("something after the end of the tar file",
           "bytes that are not 0: two tar files in one?");
  }
}

std::string tar_header(const std::string& name, uint64_t bytes) {
  std::string block(kTarBlock, '\0');
  const auto put = [&block](TarField field, const std::string& text) {
    block.replace(field.begin, text.size(), text);
  };
  const size_t slash =
      name.size() <= kName.size ? std::string::npos : name.find('/', name.size() - kName.size - 1);
  const bool split = slash != std::string::npos;
  const std::string last = split ? name.substr(slash + 1) : name,
                    prefix = split ? name.substr(0, slash) : "";
  if (last.size() > kName.size || prefix.size() > kPrefix.size || bytes >> 33 != 0)
    throw Error(ErrorKind::kInternal, "a member that a ustar header cannot name: " + name);
  char number[16];
  put(kName, last);
  put({100, 8}, "0000644");
  put({108, 8}, "0000000");
  put({116, 8}, "0000000");
  std::snprintf(number, sizeof number, "%011llo", static_cast<unsigned long long>(bytes));
  put(kSize, number);
  put({136, 12}, "00000000000");
  block[kTypeAt] = '0';
  block.replace(kMagicAt, 8,
                std::string("ustar\0"
                            "00",
                            8));
  put(kPrefix, prefix);
  std::snprintf(number, sizeof number, "%06llo",
                static_cast<unsigned long long>(header_sum(block)));
  block.replace(kChecksum.begin, 8, std::string(number) + std::string("\0 ", 2));
  return block;
}

}  // namespace lft::data
