// cpp-httplib's server with bounds that hold for every client: connections, the time of a request,
// its head and its body. Handlers see a whole body, or are not called.
#pragma once
#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/serve/connection.h"

namespace lft::serve {

struct ServerLimits {
  ConnectionLimits connection;
  size_t threads = 256;              // connections that are served at once; others wait
  size_t body_bytes = 32u << 20;     // of one request
  size_t bodies_bytes = 512u << 20;  // of all requests that are being read or wait for an answer
};

class HttpServer : public httplib::Server {
 public:
  /// `body`: of a POST, empty for GET.
  using Handler =
      std::function<void(const httplib::Request&, std::string body, httplib::Response&)>;

  explicit HttpServer(const ServerLimits& limits);
  /// Listens there; port 0 takes any that is free. The port, or -1 and errno.
  int bind(const std::string& host, int port);
  /// A GET or a POST; other methods of the path are refused with 405, other paths with 404.
  void answer(const std::string& method, const std::string& path, Handler handler);
  /// Takes the requests of a client one after the other, until it or drain() ends that.
  void take(httplib::Stream& client, Connection* connection);
  /// Every request is the last of its connection from now on.
  void drain() { draining_ = true; }
  /// Whether the client of the request that this thread answers has left.
  static bool client_left();

 private:
  bool process_and_close_socket(socket_t socket) override;
  /// Refuses what no handler will see; true: it did.
  bool refuse_head(const httplib::Request& request, httplib::Response& response) const;
  void read_and_answer(const Handler& handler, const httplib::Request& request,
                       httplib::Response& response, const httplib::ContentReader& reader);

  const ServerLimits limits_;
  std::map<std::string, std::string> methods_;  // by path
  std::atomic<size_t> held_ = 0;                // bytes of bodies
  std::atomic<bool> draining_ = false;
};

/// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it. `field`: of the
/// request; "": none.
void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& field = {});

}  // namespace lft::serve
