// Which names of this server a request may use. A page in a browser can give a name of its own to
// 127.0.0.1 and then reads the answers (DNS rebinding); such a name is none of these.
#pragma once
#include <string>
#include <string_view>

namespace lft::serve {

/// localhost, a name below it, 127.x.y.z, ::1.
bool is_loopback(std::string_view host);

class HostNames {
 public:
  /// `host`: where the server listens, as --host says it; `address`: the same as a number.
  HostNames(const std::string& host, const std::string& address);
  /// Of the value of a Host header, with or without a port. A server at all addresses (0.0.0.0, ::)
  /// may be called by any address, and by the name of its machine.
  bool allow(std::string_view host_header) const;

 private:
  std::string host_, address_, machine_;
  bool all_;
};

}  // namespace lft::serve
