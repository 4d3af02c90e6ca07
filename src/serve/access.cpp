#include "src/serve/access.h"

#include <algorithm>

#include "src/base/text.h"

namespace lft::serve {
namespace {

constexpr const char* kAsked = "Access-Control-Request-";

/// Compares all bytes of `key`, wherever the first difference is.
bool equals(std::string_view key, std::string_view given) {
  unsigned differs = key.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i)
    differs |= static_cast<unsigned char>(key[i]) ^
               static_cast<unsigned char>(i < given.size() ? given[i] : 0);
  return differs == 0;
}

bool is_allowed(const AccessRules& rules, const std::string& origin) {
  return !origin.empty() && std::ranges::any_of(rules.origins, [&](const std::string& known) {
    return known == "*" || known == origin;
  });
}

}  // namespace

bool is_origin(std::string_view text) {
  if (text == "*") return true;
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return false;
  const std::string_view host = text.substr(scheme + 3);
  return !host.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("-.:/[]_+").find(c) != std::string_view::npos;
  }) && host.find('/') == std::string_view::npos;
}

bool has_key(const AccessRules& rules, const httplib::Request& request) {
  if (rules.keys.empty()) return true;
  const std::string header = request.get_header_value("Authorization");
  const size_t space = std::min(header.find(' '), header.size());
  if (lower_ascii(header.substr(0, space)) != "bearer") return false;
  const std::string_view given = trimmed(std::string_view(header).substr(space));
  bool found = false;
  for (const std::string& key : rules.keys) found = equals(key, given) || found;
  return found;
}

bool is_preflight(const AccessRules& rules, const httplib::Request& request) {
  return request.method == "OPTIONS" && request.has_header(std::string(kAsked) + "Method") &&
         is_allowed(rules, request.get_header_value("Origin"));
}

void answer_preflight(const httplib::Request& request, httplib::Response& response) {
  response.status = 204;
  response.set_header("Access-Control-Allow-Methods", "GET, POST");
  if (const std::string headers = request.get_header_value(std::string(kAsked) + "Headers");
      !headers.empty())
    response.set_header("Access-Control-Allow-Headers", headers);
  if (request.has_header(std::string(kAsked) + "Private-Network"))
    response.set_header("Access-Control-Allow-Private-Network", "true");
  response.set_header("Access-Control-Max-Age", "600");
}

void allow_origin(const AccessRules& rules, const httplib::Request& request,
                  httplib::Response& response) {
  if (rules.origins.empty()) return;
  response.set_header("Vary", "Origin");
  const std::string origin = request.get_header_value("Origin");
  if (is_allowed(rules, origin)) response.set_header("Access-Control-Allow-Origin", origin);
}

}  // namespace lft::serve
