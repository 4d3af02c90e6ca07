#include "src/data/rows/row_images.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"

namespace lft::data {
namespace {

constexpr char kDataMark[] = "data:", kTarMark[] = "tar:";

bool is_base64_digit(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/';
}

/// Decodes base64 with or without padding, also URL-safe, with white space anywhere (MIME line
/// breaks). Returns the error in the text, or "".
std::string decode_base64(std::string_view text, std::string* bytes) {
  std::string digits;
  digits.reserve(text.size() + 3);
  size_t padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    const bool pads = c == '=' && digits.size() % 4 + ++padding <= 4;
    if (!pads && (!is_base64_digit(c) || padding > 0))
      return "character " + std::to_string(i + 1) + " after the comma is " +
             quote_text(text.substr(i, 1)) + (padding > 0 ? ", after padding" : "");
    if (!pads) digits += c;
  }
  const size_t count = digits.size();
  if (count == 0 || count % 4 == 1 || (padding > 0 && (count + padding) % 4 != 0))
    return std::to_string(count) + " characters of base64" +
           (padding > 0 ? " and " + std::to_string(padding) + " of padding" : "") +
           " after the comma, which are no whole bytes";
  digits.append((4 - count % 4) % 4, '=');
  bytes->resize(digits.size() / 4 * 3);
  constexpr size_t kPiece = 1 << 20;  // EVP_DecodeBlock() takes an int
  for (size_t at = 0; at < digits.size(); at += kPiece)
    EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes->data()) + at / 4 * 3,
                    reinterpret_cast<const unsigned char*>(digits.data()) + at,
                    static_cast<int>(std::min(kPiece, digits.size() - at)));
  bytes->resize(count * 3 / 4);
  return "";
}

/// Decodes "%41" and the like; empty if a percent sign is not followed by two hex digits.
std::optional<std::string> unescaped(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      plain += text[at];
      continue;
    }
    int byte = 0;
    const char* digits = text.data() + at + 1;
    if (at + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      return std::nullopt;
    plain += static_cast<char>(byte);
    at += 2;
  }
  return plain;
}

/// Whether `text` begins with `prefix`, which is in lower case, ignoring case.
bool begins_with(std::string_view text, std::string_view prefix) {
  return lower_ascii(text.substr(0, prefix.size())) == prefix;
}

/// The bytes of an image as plain base64 without a URI, recognised by a known file signature.
std::optional<std::string> bare_base64(std::string_view name) {
  constexpr size_t kShortest = 64;  // longer than a file name that happens to look like base64
  constexpr std::array<std::string_view, 6> kBegin = {"iVBORw0KGgo", "/9j/",  "R0lGOD",
                                                      "UklGR",       "SUkqA", "TU0AK"};
  const auto begins = [&](std::string_view each) { return name.starts_with(each); };
  std::string bytes;
  const bool is_image = name.size() >= kShortest && std::ranges::any_of(kBegin, begins) &&
                        decode_base64(name, &bytes).empty();
  return is_image ? std::optional(std::move(bytes)) : std::nullopt;
}

RowImage bytes_in_row(std::string bytes) {
  RowImage image{.name = kDataMark + sha256(bytes).substr(0, 32)};
  image.bytes = std::make_shared<const std::string>(std::move(bytes));
  return image;
}

std::string base_name(const std::string& name) { return name.substr(name.rfind('/') + 1); }

/// The part of a member's base name after its first dot, which ends the sample's key.
std::string ending(const std::string& name) {
  const std::string base = base_name(name);
  return base.substr(std::min(base.find('.'), base.size() - 1) + 1);
}

/// A name without its digits, and its numbers without leading zeros.
struct NumberedName {
  std::string rest;
  std::vector<std::string> numbers;
};
NumberedName numbered(const std::string& name) {
  NumberedName made;
  bool in_number = false;
  for (const char each : name) {
    const bool is_digit = each >= '0' && each <= '9';
    if (is_digit && !in_number) made.numbers.emplace_back();
    if (!is_digit)
      made.rest += each;
    else if (each != '0' || !made.numbers.back().empty())
      made.numbers.back() += each;
    in_number = is_digit;
  }
  return made;
}

/// False if the names differ only in their numbers and one has a lower number than its
/// predecessor.
bool numbers_rise(const std::vector<std::string>& names) {
  const auto lower = [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  bool rises = true;
  for (size_t i = 1; i < names.size(); ++i) {
    const NumberedName before = numbered(names[i - 1]), after = numbered(names[i]);
    if (before.rest != after.rest || before.numbers.size() != after.numbers.size()) return true;
    rises = rises && !std::ranges::lexicographical_compare(after.numbers, before.numbers, lower);
  }
  return rises;
}

const RowImage& member_of(const std::vector<RowImage>& members, const std::string& name,
                          const std::string& where) {
  const auto find = [&](const auto& part) {
    return std::ranges::find_if(members, [&](const RowImage& each) {
      return part(each.name.substr(sizeof kTarMark - 1)) == name;
    });
  };
  auto found = find([](const std::string& whole) { return whole; });
  if (found == members.end()) found = find(base_name);
  if (found == members.end()) found = find(ending);
  if (found != members.end()) return *found;
  std::vector<std::string> names;
  for (const RowImage& each : members) names.push_back(each.name.substr(sizeof kTarMark - 1));
  refuse(ErrorKind::kInput, "a sample of a tar file names an image that it does not contain", where,
         quote_text(name, 80), names.empty() ? "none: it contains no image" : join(names, ", ", 8),
         "name images as the tar file does, or leave the names out where all are shown in order");
}

/// Whether the name had the prefix, which is then removed.
bool take_prefix(std::string& name, std::string_view prefix) {
  const bool had = name.starts_with(prefix);
  if (had) name.erase(0, prefix.size());
  return had;
}

RowImage decode_data_uri(std::string_view uri, const std::string& where) {
  const size_t comma = uri.find(',');
  const std::string_view head = uri.substr(0, std::min(comma, uri.size()));
  const std::string next = "write it as data:image/png;base64,...";
  if (comma == std::string_view::npos || !lower_ascii(head).ends_with(";base64")) {
    refuse(ErrorKind::kInput, "an image's data: URI is not in base64", where, quote_text(uri, 60),
           "data:<type>;base64,<bytes>", next);
  }
  std::string_view text = uri.substr(comma + 1);
  const std::optional<std::string> plain = unescaped(text);
  if (plain) text = *plain;
  std::string bytes;
  if (const std::string wrong = decode_base64(text, &bytes); !wrong.empty())
    refuse(ErrorKind::kInput, "an image's data: URI is not whole", where, wrong, "base64", next);
  return bytes_in_row(std::move(bytes));
}

}  // namespace

bool has_image_ending(const std::string& name) {
  static const std::set<std::string> kEndings = {
      "jpg", "jpeg", "jpe", "jfif", "png",  "webp", "bmp", "gif", "tif", "tiff", "ppm",
      "pgm", "pbm",  "pnm", "avif", "heic", "heif", "jp2", "j2k", "jxl", "tga"};
  const size_t point = name.rfind('.');
  return point != std::string::npos && kEndings.contains(lower_ascii(name.substr(point + 1)));
}

bool is_embedded_image(std::string_view text) {
  return begins_with(text, "data:image/") || bare_base64(text).has_value();
}

bool comes_with_row(const std::string& name) {
  return name.starts_with(kDataMark) || is_tar_member(name);
}

bool is_tar_member(const std::string& name) { return name.starts_with(kTarMark); }

uint64_t embedded_key(const Row& row, const std::string& name) {
  const auto is_it = [&](const RowImage& each) { return each.name == name; };
  if (std::ranges::none_of(row.inside, is_it)) return 0;
  const io::FileHandle file = open_row_image(row, name, "", /*follow_symlinks=*/false);
  Sha256 hash;
  std::string piece;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(1 << 20, file.size() - at));
    file.read_at(at, piece.data(), piece.size());
    hash.update(piece);
  }
  return std::stoull(hash.hex().substr(0, 16), nullptr, 16);
}

std::optional<RowImage> image_in_name(std::string_view name, const std::string& where) {
  if (begins_with(name, kDataMark)) return decode_data_uri(name, where);
  std::optional<std::string> bytes = bare_base64(name);
  return bytes ? std::optional(bytes_in_row(std::move(*bytes))) : std::nullopt;
}

std::string path_of_name(const std::string& name, const std::string& where) {
  constexpr std::string_view kFile = "file://";
  if (name.find("://") == std::string::npos) return name;
  const size_t path = begins_with(name, kFile) ? name.find('/', kFile.size()) : std::string::npos;
  const std::string host =
      path == std::string::npos ? name : name.substr(kFile.size(), path - kFile.size());
  if (!host.empty() && host != "localhost")
    refuse(ErrorKind::kInput, "an image is a URL; lft reads files under data.image_root only",
           where, quote_text(name, 80), "a file name, a file:// or a data: URI",
           "download the images and name the files");
  return unescaped(name.substr(path)).value_or(name.substr(path));
}

bool take_members(Row& row, const std::vector<RowImage>& members, bool all_members) {
  if (row.images.empty()) {
    if (!all_members) return true;
    for (const RowImage& each : members) row.images.push_back(each.name);
    row.inside = members;
    return numbers_rise(row.images);
  }
  for (std::string& name : row.images) {
    if (name.starts_with(kDataMark)) continue;
    const bool inside = take_prefix(name, kArrowImage) || take_prefix(name, kArrowBytes);
    if (take_prefix(name, kArrowPath) || (!inside && (!all_members || members.empty()))) continue;
    const RowImage& member = member_of(members, name, row.where);
    name = member.name;
    row.inside.push_back(member);
  }
  return true;
}

io::FileHandle open_row_image(const Row& row, const std::string& name, const std::string& root,
                              bool follow_symlinks) {
  for (const RowImage& each : row.inside) {
    if (each.name != name) continue;
    if (each.bytes != nullptr) return io::FileHandle::of_bytes(name, each.bytes);
    return io::FileHandle::open_part(each.file, static_cast<uint64_t>(each.offset),
                                     static_cast<uint64_t>(each.size),
                                     each.file + ": " + name.substr(sizeof kTarMark - 1));
  }
  return io::open_image(root, name, follow_symlinks);
}

io::FileBytes read_row_image(const Row& row, const std::string& name, const std::string& root,
                             const io::ImageLimits& limits) {
  const io::FileHandle file = open_row_image(row, name, root, limits.follow_symlinks);
  if (file.size() > limits.max_bytes) {
    refuse(ErrorKind::kInput, "file too large", file.path(), std::to_string(file.size()) + " bytes",
           "at most " + std::to_string(limits.max_bytes) + " bytes");
  }
  io::FileBytes bytes(file.size(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace lft::data
