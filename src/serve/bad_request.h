// What is wrong with a request of a client.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "src/io/json.h"

namespace lft::serve {

/// Answered with 400. `field`: of the request; "": none.
class BadRequest : public std::runtime_error {
 public:
  BadRequest(const std::string& message, std::string field)
      : std::runtime_error(message), field(std::move(field)) {}
  const std::string field;
};

/// Whether a value asks for nothing: null, false, or an empty text, list or object.
bool asks_nothing(const io::Json& value);

/// `object[key]`; null where it is no object or has no such key.
const io::Json& member_or_null(const io::Json& object, const std::string& key);

}  // namespace lft::serve
