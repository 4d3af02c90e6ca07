#include "src/report/html.h"

#include <string_view>

#include "src/base/base64.h"

namespace lft::report {
std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const std::string_view entity = c == '&'   ? "&amp;"
                                    : c == '<' ? "&lt;"
                                    : c == '>' ? "&gt;"
                                    : c == '"' ? "&quot;"
                                               : "";
    if (entity.empty()) {
      out += c;
    } else {
      out += entity;
    }
  }
  return out;
}

std::string image_url(const std::string& image) {
  if (image.empty()) return "";
  const bool jpeg = image.compare(0, 3, "\xff\xd8\xff") == 0;
  return std::string("data:image/") + (jpeg ? "jpeg" : "png") + ";base64," + base64_encode(image);
}

}  // namespace lft::report
