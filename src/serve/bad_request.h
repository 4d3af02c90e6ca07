// The error of a client's request.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace lft::serve {

/// The response is a 400. `field` is the field of the request, or empty.
class BadRequest : public std::runtime_error {
 public:
  BadRequest(const std::string& message, std::string field)
      : std::runtime_error(message), field(std::move(field)) {}
  const std::string field;
};

}  // namespace lft::serve
