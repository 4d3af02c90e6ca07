// A row of a data file, as its formats say it. Plain data.
#pragma once
#include <string>
#include <vector>

#include "src/text/chat_template.h"

namespace lft::data {

/// What is asked and answered, and which image files are shown.
struct Row {
  std::string id;
  std::string where;  // file:line or file[index], for messages
  std::vector<text::Turn> turns;
  std::vector<std::string> images;  // names under image_root
  std::string system = {};          // of the row itself; empty: the template's
};

}  // namespace lft::data
