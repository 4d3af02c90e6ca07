#include "src/serve/http_server.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <utility>

#include "src/io/json.h"

namespace lft::serve {
namespace {

thread_local Connection* current = nullptr;  // of the request that this thread answers
thread_local bool last_of_connection = false;

/// What the client may still send of this request is not read as its next one.
void close_after(httplib::Response& response) {
  response.set_header("Connection", "close");
  last_of_connection = true;
}

/// Bytes of bodies that are held, given back at the end: to the system, too, where they are many.
class Held {
 public:
  Held(std::atomic<size_t>& all, size_t bytes, size_t most) : all_(all), bytes_(bytes) {
    granted_ = all_.fetch_add(bytes_) + bytes_ <= most;
  }
  ~Held() {
    constexpr size_t kMany = 1u << 20;
    if (bytes_ > kMany) malloc_trim(0);
    all_ -= bytes_;
  }
  Held(const Held&) = delete;
  bool granted() const { return granted_; }

 private:
  std::atomic<size_t>& all_;
  size_t bytes_;
  bool granted_ = false;
};

/// Of a header that is no number 0: the library refuses the body.
size_t announced_bytes(const httplib::Request& request) {
  const std::string text = request.get_header_value("Content-Length");
  size_t bytes = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return read.ec == std::errc::result_out_of_range ? SIZE_MAX : bytes;
}

bool is_json(const std::string& content_type) {
  return content_type.substr(0, content_type.find(';')) == "application/json";
}

std::string type_of(int status) {
  return status == 429 || status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& field) {
  const io::Json error = {{"message", message},
                          {"type", type_of(status)},
                          {"param", field.empty() ? io::Json(nullptr) : io::Json(field)},
                          {"code", nullptr}};
  response.status = status;
  response.set_content(
      io::Json{{"error", error}}.dump(-1, ' ', false, io::Json::error_handler_t::replace),
      "application/json");
  if (status == 429 || status == 503) response.set_header("Retry-After", "1");
}

HttpServer::HttpServer(const ServerLimits& limits) : limits_(limits) {
  new_task_queue = [this] { return new httplib::ThreadPool(limits_.threads); };
  set_payload_max_length(limits.body_bytes);
  set_tcp_nodelay(true);
  // Not SO_REUSEPORT, the library's own choice: a second server would share the port unnoticed.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return refuse_head(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
  });
  set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
    if (current != nullptr && current->refusal() != 0) response.status = current->refusal();
    if (response.body.empty())
      set_error(response, response.status, "the request is malformed, cut or too large");
    return HandlerResponse::Handled;
  }));
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response,
         const auto&) {  // std::exception_ptr; in cpp-httplib before 0.11 the exception
        set_error(response, 500, "the server failed at this request");
      });
}

int HttpServer::bind(const std::string& host, int port) {
  // The library lets 5 connections wait to be taken, and the system resets some of more that come
  // at once.
  constexpr int kWaiting = 1024;
  const int bound = port == 0                          ? bind_to_any_port(host.c_str())
                    : bind_to_port(host.c_str(), port) ? port
                                                       : -1;
  return bound >= 0 && ::listen(svr_sock_, kWaiting) == 0 ? bound : -1;
}

void HttpServer::answer(const std::string& method, const std::string& path, Handler handler) {
  methods_[path] = method;
  if (method == "GET") {
    Get(path, [handler](const httplib::Request& request, httplib::Response& response) {
      handler(request, {}, response);
    });
    return;
  }
  Post(path, [this, handler](const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader& reader) {
    read_and_answer(handler, request, response, reader);
  });
}

bool HttpServer::refuse_head(const httplib::Request& request, httplib::Response& response) const {
  const auto known = methods_.find(request.path);
  const bool reads = known != methods_.end() && known->second == "POST";
  if (known == methods_.end()) {
    set_error(response, 404, "no such path");
  } else if (request.method != known->second &&
             !(known->second == "GET" && request.method == "HEAD")) {
    response.set_header("Allow", known->second);
    set_error(response, 405, "this path takes " + known->second);
  } else if (reads && !request.has_header("Content-Length")) {
    set_error(response, 411, "a request says its Content-Length here");
  } else if (reads && !is_json(request.get_header_value("Content-Type"))) {
    set_error(response, 415, "a request is application/json here");
  } else if (reads &&
             (request.has_header("Transfer-Encoding") || request.has_header("Content-Encoding"))) {
    set_error(response, 415, "a request is neither chunked nor compressed here");
  } else if (reads && announced_bytes(request) > limits_.body_bytes) {
    set_error(response, 413,
              "the request is larger than " + std::to_string(limits_.body_bytes) + " bytes");
  } else {
    return false;
  }
  close_after(response);
  return true;
}

void HttpServer::read_and_answer(const Handler& handler, const httplib::Request& request,
                                 httplib::Response& response,
                                 const httplib::ContentReader& reader) {
  const size_t bytes = announced_bytes(request);
  const Held held(held_, bytes, limits_.bodies_bytes);
  if (!held.granted()) {
    close_after(response);
    return set_error(response, 503, "too many large requests at once");
  }
  std::string body;
  body.reserve(bytes);
  const bool whole = reader([&](const char* data, size_t size) {
    body.append(data, size);
    return body.size() <= bytes;
  });
  if (!whole || body.size() != bytes) {
    const bool late = current != nullptr && current->refusal() == 408;
    close_after(response);
    return set_error(response, late ? 408 : 400,
                     late ? "the request took too long to arrive" : "the request is cut");
  }
  handler(request, std::move(body), response);
}

void HttpServer::take(httplib::Stream& client, Connection* connection) {
  current = connection;
  for (;;) {
    if (connection != nullptr && !connection->wait_for_request()) break;
    last_of_connection = draining_;
    bool closes = false;
    const bool answered = process_request(client, draining_, closes, [&](httplib::Request&) {
      if (connection != nullptr) connection->head_is_read();
    });
    if (!answered && connection != nullptr && connection->refusal() != 0) {
      client.write("HTTP/1.1 " + std::to_string(connection->refusal()) +
                   " Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    }
    if (!answered || closes || last_of_connection || draining_ || connection == nullptr ||
        connection->refusal() != 0)
      break;
  }
  current = nullptr;
}

bool HttpServer::client_left() { return current != nullptr && current->client_left(); }

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, limits_.connection);
  take(connection, &connection);
  connection.linger();
  close(socket);
  return true;
}

}  // namespace lft::serve
