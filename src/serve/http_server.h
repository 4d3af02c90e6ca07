// cpp-httplib's server for complete requests (acceptor.h): its paths, and the checks of a head. A
// thread waits for an answer, never for a client's request.
#pragma once
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "src/serve/acceptor.h"
#include "src/serve/connection.h"
#include "src/serve/host_names.h"

namespace lft::serve {

struct ServerLimits {
  AcceptLimits accept;
  std::chrono::milliseconds write_time{30'000};  // timeout for a client that reads nothing
  size_t threads = 256;  // requests that are handled concurrently; others wait
};

class HttpServer : public httplib::Server {
 public:
  /// `body`: for a POST, empty for GET.
  using Handler =
      std::function<void(const httplib::Request&, std::string body, httplib::Response&)>;

  explicit HttpServer(const ServerLimits& limits);
  /// Listens on host:port; port 0 is any free port. Returns the port, or -1 and errno.
  int bind(const std::string& host, int port);
  /// A GET or a POST; other methods of the path are rejected with 405, other paths with 404.
  void answer(const std::string& method, const std::string& path, Handler handler);
  /// Accepts and answers until stop(); returns when all accepted requests are answered.
  void run();
  /// Accepts no more requests: each request in progress is the last one of its connection.
  void stop_accepting();
  /// Answers one request; false: no further request of its connection is read. `connection` is null
  /// if the client cannot disconnect.
  bool answer_one(httplib::Stream& client, Connection* connection, std::string body);
  /// Whether the client of this thread's request has disconnected.
  static bool client_left();

 private:
  void serve_client(Arrived& arrived);
  /// Rejects requests without a handler; returns whether it did.
  bool refuse_head(const httplib::Request& request, httplib::Response& response) const;
  std::string unknown_path(const std::string& path) const;

  const ServerLimits limits_;
  std::optional<HostNames> hosts_;              // set once it listens
  std::map<std::string, std::string> methods_;  // by path
  std::atomic<bool> draining_ = false;
  httplib::TaskQueue* threads_ = nullptr;  // of run()
  Acceptor acceptor_;
};

/// {"error": {"message", "type", "param", "code"}}, as OpenAI clients expect it. `field` is the
/// field of the request, or empty.
void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& field = {});
/// A complete response with this error, for a request that the library has not read.
std::string refusal_text(const Refusal& refusal);

}  // namespace lft::serve
