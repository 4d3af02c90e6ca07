// Who may use the server: API keys, and sites whose pages may read the answers (CORS).
#pragma once
#include <httplib.h>

#include <string>
#include <string_view>
#include <vector>

namespace lft::serve {

struct AccessRules {
  std::vector<std::string> keys;     // one of them is needed; empty: none is
  std::vector<std::string> origins;  // "https://example.com", or "*" for all; empty: no other site
};

/// Whether it is "*", or a scheme, a host and perhaps a port, as browsers send it.
bool is_origin(std::string_view text);

/// Whether the request has one of the keys, as "Authorization: Bearer KEY". The time does not
/// depend on the key.
bool has_key(const AccessRules& rules, const httplib::Request& request);

/// Whether a browser asks if a page of an allowed site may send its request.
bool is_preflight(const AccessRules& rules, const httplib::Request& request);
/// Adds the answer to that.
void answer_preflight(const httplib::Request& request, httplib::Response& response);
/// Adds the headers that let a page of an allowed site read the response.
void allow_origin(const AccessRules& rules, const httplib::Request& request,
                  httplib::Response& response);

}  // namespace lft::serve
