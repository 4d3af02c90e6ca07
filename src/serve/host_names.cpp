#include "src/serve/host_names.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <array>

#include "src/base/text.h"

namespace lft::serve {
namespace {

bool is_address(const std::string& host, int family) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return inet_pton(family, host.c_str(), address.data()) == 1;
}

bool is_any_address(const std::string& host) {
  return is_address(host, AF_INET) || is_address(host, AF_INET6);
}

/// "[::1]:8000" -> "::1", "LocalHost.:8000" -> "localhost".
std::string without_port(std::string_view header) {
  const std::string_view text = trimmed(header);
  if (text.starts_with('['))
    return lower_ascii(text.substr(1, std::min(text.find(']'), text.size()) - 1));
  std::string host = lower_ascii(text.substr(0, text.find(':')));
  if (host.ends_with('.')) host.pop_back();
  return host;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? lower_ascii(name.data()) : "";
}

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string lower = lower_ascii(host);
  return lower == "localhost" || lower.ends_with(".localhost") || lower == "::1" ||
         (lower.starts_with("127.") && is_address(lower, AF_INET));
}

HostNames::HostNames(const std::string& host, const std::string& address)
    : host_(lower_ascii(host)),
      address_(address),
      machine_(machine_name()),
      all_(address == "0.0.0.0" || address == "::") {}

bool HostNames::allow(std::string_view host_header) const {
  const std::string host = without_port(host_header);
  if (is_loopback(host) || host == host_ || host == address_) return true;
  const bool is_machine = !machine_.empty() && first_label(host) == first_label(machine_);
  return all_ && (is_any_address(host) || is_machine);
}

}  // namespace lft::serve
