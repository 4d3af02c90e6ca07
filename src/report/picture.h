// Pictures as a page shows them.
#pragma once
#include <string>
#include <string_view>

namespace lft::report {

struct Picture {
  std::string bytes;  // of a PNG or JPEG file; empty: it cannot be shown
  std::string note;   // "2560 x 1600, shown smaller", or the reason why it is not shown
};
/// A PNG or JPEG of at most 96 KiB does not change; larger ones and other formats are scaled to at
/// most 640 pixels a side and are a PNG, or a JPEG if the PNG has more than 96 KiB. `where` names
/// it in the note.
Picture shown_picture(std::string_view bytes, const std::string& where);
/// The bytes of shown_picture() of a file; empty if it does not exist.
std::string picture_of_file(const std::string& file);

}  // namespace lft::report
