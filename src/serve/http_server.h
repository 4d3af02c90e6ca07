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
#include "src/serve/access.h"
#include "src/serve/bad_request.h"
#include "src/serve/connection.h"
#include "src/serve/host_names.h"

namespace lft::serve {

struct ServerLimits {
  AcceptLimits accept;
  AccessRules access = {};
  std::chrono::milliseconds write_time{30'000};  // timeout for a client that reads nothing
  size_t threads = 256;  // requests that are handled concurrently; others wait
};

/// What the log line of a request has in addition to its path and status.
struct LogNote {
  std::string model = {};
  int64_t tokens_in = -1, tokens_out = -1;  // -1: none
  std::string error = {};                   // field and code, never words of the request
};

class HttpServer : public httplib::Server {
 public:
  /// `body`: for a POST, empty for GET.
  using Handler =
      std::function<void(const httplib::Request&, std::string body, httplib::Response&)>;

  explicit HttpServer(const ServerLimits& limits);
  /// Listens on host:port; port 0 is any free port. Returns the port, or -1 and errno.
  int bind(const std::string& host, int port);
  /// A GET or a POST; other methods of the path are rejected with 405, other paths with 404. A path
  /// that ends with "/" means all that begin with it. Each request is logged in one line.
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
  /// The note of this thread's request.
  static LogNote& note();

 private:
  void serve_client(Arrived& arrived);
  /// Answers requests that the library's routing does not: rejected ones, a browser's questions,
  /// and those to paths below another. Returns whether it did.
  bool answer_early(const httplib::Request& request, httplib::Response& response) const;
  /// Rejects a POST for the form of its body; returns whether it did.
  bool refuse_body(const httplib::Request& request, httplib::Response& response) const;
  std::string unknown_path(const std::string& path) const;
  /// The entry of a path, or of the beginning of it that ends with "/"; null: there is none.
  struct Path {
    std::string method;
    Handler handler;
  };
  const Path* find_path(const std::string& path) const;

  const ServerLimits limits_;
  std::optional<HostNames> hosts_;  // set once it listens
  std::map<std::string, Path> paths_;
  std::atomic<bool> draining_ = false;
  httplib::TaskQueue* threads_ = nullptr;  // of run()
  Acceptor acceptor_;
};

/// {"error": {"message", "type", "param", "code"}}, as OpenAI clients expect it. `field` is the
/// field of the request, or empty; `code` as in bad_request.h.
void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& field = {}, const std::string& code = {});
void set_error(httplib::Response& response, const BadRequest& bad);
/// A complete response with this error, for a request that the library has not read.
std::string refusal_text(const Refusal& refusal);

}  // namespace lft::serve
