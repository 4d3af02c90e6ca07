#include "src/text/jinja/value/work.h"

#include <algorithm>

#include "src/base/errors.h"

namespace lft::text::jinja {

Work::~Work() {
  for (const auto& object : kept_) object->release();
}

void Work::keep(std::shared_ptr<Object> object) {
  take(sizeof(object));
  kept_.push_back(std::move(object));
}

void Work::refuse(std::string what, std::string found, std::string expected,
                  std::string next) const {
  if (next.empty()) next = "correct the chat template at this line, or use another one";
  lft::refuse(ErrorKind::kInput, std::move(what), place(), std::move(found), std::move(expected),
              std::move(next));
}

void Work::unsupported(const std::string& what, const std::string& name) const {
  refuse("the chat template uses a " + what + " that is not supported", quote_text(name), {},
         "rewrite the template without it, or use another template");
}

void Work::reject(std::string message) const {
  throw Refused(ErrorKind::kInput,
                {"the chat template refuses this conversation",
                 place(),
                 std::move(message),
                 {},
                 "change the conversation as the template demands, or use another template"});
}

void Work::spent(const std::string& unit, int64_t limit) const {
  refuse("the chat template takes too much to render",
         "more than " + std::to_string(limit) + " " + unit);
}

uint32_t Work::loser(const std::string& name) {
  std::string full = name + ", line " + std::to_string(line_);
  const auto found = std::find(losers_.begin(), losers_.end(), full);
  if (found != losers_.end()) return static_cast<uint32_t>(found - losers_.begin());
  losers_.push_back(std::move(full));
  return static_cast<uint32_t>(losers_.size() - 1);
}

}  // namespace lft::text::jinja
