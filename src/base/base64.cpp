#include "src/base/base64.h"

#include <openssl/evp.h>

namespace lft {

std::string base64_encode(std::string_view bytes) {
  constexpr size_t kPiece = 3 << 20;  // EVP_EncodeBlock() takes an int
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::string_view piece = bytes.substr(at, kPiece);
    std::string encoded((piece.size() + 2) / 3 * 4 + 1, '\0');  // with a NUL at the end
    const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                       reinterpret_cast<const unsigned char*>(piece.data()),
                                       static_cast<int>(piece.size()));
    text.append(encoded, 0, static_cast<size_t>(length));
  }
  return text;
}

}  // namespace lft
