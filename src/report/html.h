// Pieces of pages that work offline: escaped text and embedded images.
#pragma once
#include <string>

namespace lft::report {

/// For element content and for attributes in double quotes.
std::string html_text(const std::string& text);
/// The bytes of a PNG or JPEG file; "" of others, of none, and of more than 2 MiB.
std::string read_image(const std::string& file);
/// The same bytes, where they are such.
std::string shown_image(std::string bytes);
/// PNG or JPEG bytes as a data: URL; "" for none.
std::string image_url(const std::string& image);

}  // namespace lft::report
