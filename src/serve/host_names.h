// The names of this server that a request may use, against DNS rebinding: a page in a browser could
// map another name to 127.0.0.1 and read the answers.
#pragma once
#include <string>
#include <string_view>

namespace lft::serve {

/// localhost, its subdomains, 127.x.y.z, ::1.
bool is_loopback(std::string_view host);

class HostNames {
 public:
  /// `host` is the value of --host, and `address` its numeric form.
  HostNames(const std::string& host, const std::string& address);
  /// `header` is the value of a Host header, with or without a port. A server on all addresses
  /// (0.0.0.0, ::) accepts any address and the machine's name.
  bool allow(std::string_view host_header) const;

 private:
  std::string host_, address_, machine_;
  bool all_;
};

}  // namespace lft::serve
