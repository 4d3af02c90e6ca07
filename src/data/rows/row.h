// A row of a data file in any of its formats. Plain data.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/text/chat/conversation.h"

namespace lft::data {

/// An image embedded in its row: bytes, or a part of the data file.
struct RowImage {
  std::string name;                               // "data:..." or "tar:...", as in Row::images
  std::shared_ptr<const std::string> bytes = {};  // content of a data: URI
  std::string file = {};                          // otherwise a part of this file
  int64_t offset = 0, size = 0;
};

/// A conversation and its image files.
struct Row {
  std::string id;
  std::string where;                      // file:line or file[index], for messages
  text::Conversation conversation;        // without a system message the template's own is used
  std::vector<std::string> images;        // names under image_root, or those in `inside`
  std::vector<std::string> answers = {};  // further correct answers, if the row has a list of them
  std::vector<RowImage> inside = {};      // empty for a row that was read from prepared data
  std::shared_ptr<const Row> rejected = {};  // of a pair: the row with the other answer
  std::optional<bool> desirable = {};        // of a row of KTO: its label

  const std::vector<text::Message>& messages() const { return conversation.messages; }
  std::vector<text::Turn> turns() const { return text::turns_of(conversation.messages); }
};

}  // namespace lft::data
