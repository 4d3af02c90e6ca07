#include "src/serve/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/io/json.h"

namespace lft::serve {
namespace {

// The request that this thread answers.
thread_local Connection* current = nullptr;
thread_local std::string* current_body = nullptr;
thread_local LogNote current_note;
thread_local std::chrono::steady_clock::time_point current_begin;

/// "POST /v1/chat/completions 200, digits, 37 tokens in, 12 out, 0.84 s"
void log_request(const std::string& method, const std::string& path, int status,
                 std::chrono::steady_clock::time_point begin, const LogNote& note) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::string line = method + " " + escape_text(path, 80) + " " + std::to_string(status);
  if (!note.error.empty()) line += " (" + note.error + ")";
  if (!note.model.empty()) line += ", " + note.model;
  if (note.tokens_in >= 0) line += ", " + std::to_string(note.tokens_in) + " tokens in";
  if (note.tokens_out >= 0) line += ", " + std::to_string(note.tokens_out) + " out";
  notice(line + ", " + format_number(seconds, "%.3f") + " s");
}

/// Whether it is application/json, in UTF-8 if it names a character set.
bool is_json(const std::string& content_type) {
  const std::string lower = lower_ascii(content_type);
  std::string_view rest = lower;
  const auto next = [&] {
    const size_t end = std::min(rest.find(';'), rest.size());
    const std::string_view part = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  if (next() != "application/json") return false;
  while (!rest.empty()) {
    std::string_view part = next();
    if (!part.starts_with("charset=")) continue;
    part.remove_prefix(8);
    if (part.starts_with('"') && part.ends_with('"') && part.size() > 1)
      part = part.substr(1, part.size() - 2);
    if (part != "utf-8" && part != "utf8" && part != "us-ascii") return false;
  }
  return true;
}

bool is_compressed(const httplib::Request& request) {
  const std::string coding = request.get_header_value("Content-Encoding");
  return !coding.empty() && lower_ascii(coding) != "identity";
}

constexpr const char* kOpenPath = "/health";  // needs no key

/// Other keys of a request may be text of its user, which is not logged.
bool is_parameter_name(const std::string& field) {
  constexpr size_t kLongest = 40;
  return field.size() <= kLongest && std::ranges::all_of(field, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
         });
}

std::string type_of(int status) {
  return status == 429 || status >= 500 ? "server_error" : "invalid_request_error";
}

/// The address of a listening socket, as a number.
std::string address_of(socket_t socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  const auto* const found = reinterpret_cast<const sockaddr*>(&address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(found, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return host.data();
}

/// "http://host/path", as sent by a client of a proxy, becomes "/path".
void drop_authority(httplib::Request& request) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!lower_ascii(request.path).starts_with(scheme)) continue;
    const size_t path = request.path.find('/', scheme.size());
    request.path = path == std::string::npos ? "/" : request.path.substr(path);
  }
}

}  // namespace

void set_error(httplib::Response& response, int status, const std::string& message,
               const std::string& field, const std::string& code) {
  const io::Json error = {{"message", message},
                          {"type", type_of(status)},
                          {"param", field.empty() ? io::Json(nullptr) : io::Json(field)},
                          {"code", code.empty() ? io::Json(nullptr) : io::Json(code)}};
  const std::string named = is_parameter_name(field) ? field : "";
  HttpServer::note().error = named + (named.empty() || code.empty() ? "" : ": ") + code;
  response.status = status;
  response.set_content(io::json_text(io::Json{{"error", error}}), "application/json");
  if (status == 429 || status == 503) response.set_header("Retry-After", "1");
}

void set_error(httplib::Response& response, const BadRequest& bad) {
  set_error(response, bad.status, bad.what(), bad.field, bad.code);
}

std::string refusal_text(const Refusal& refusal) {
  httplib::Response response;
  set_error(response, refusal.status, refusal.message);
  return "HTTP/1.1 " + std::to_string(refusal.status) +
         " Refused\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(response.body.size()) + "\r\n\r\n" + response.body;
}

HttpServer::HttpServer(const ServerLimits& limits)
    : limits_(limits), acceptor_(limits.accept, [this](Arrived arrived) {
        const auto held = std::make_shared<Arrived>(std::move(arrived));
        threads_->enqueue([this, held] { serve_client(*held); });
      }) {
  // Not SO_REUSEPORT, the library's default: a second server would share the port unnoticed.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return answer_early(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
  });
  // The library announces a maximum number of requests that does not apply here.
  set_post_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    response.headers.erase("Keep-Alive");
    allow_origin(limits_.access, request, response);
  });
  set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) set_error(response, response.status, "the request is malformed");
    return HandlerResponse::Handled;
  }));
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response,
         const auto&) {  // std::exception_ptr; in cpp-httplib before 0.11 the exception
        set_error(response, 500, "the server failed at this request");
      });
}

int HttpServer::bind(const std::string& host, int port) {
  // The library's backlog is 5, and the system resets connections beyond that.
  constexpr int kWaiting = 1024;
  const int bound = port == 0                          ? bind_to_any_port(host.c_str())
                    : bind_to_port(host.c_str(), port) ? port
                                                       : -1;
  if (bound < 0 || ::listen(svr_sock_, kWaiting) != 0) return -1;
  hosts_.emplace(host, address_of(svr_sock_));
  return bound;
}

void HttpServer::answer(const std::string& method, const std::string& path, Handler handler) {
  paths_[path] = {method, handler};
  if (path.ends_with('/')) return;  // answered before the library's routing
  if (method == "GET") {
    Get(path, [handler](const httplib::Request& request, httplib::Response& response) {
      handler(request, {}, response);
    });
    return;
  }
  Post(path, [handler](const httplib::Request& request, httplib::Response& response,
                       const httplib::ContentReader&) {
    handler(request, std::move(*current_body), response);
  });
}

std::string HttpServer::unknown_path(const std::string& path) const {
  std::vector<std::string> known;
  for (const auto& [each, entry] : paths_)
    known.push_back(entry.method + " " + each + (each.ends_with('/') ? "{id}" : ""));
  std::string text =
      "there is no path " + quote_text(path, 80) + " here (expected " + join(known) + ")";
  if (!path.starts_with("/v1/")) text += "; the base_url of a client ends with /v1";
  if (path == "/v1/responses")
    text += "; OpenAI's clients have an option for chat completions instead of responses";
  return text;
}

const HttpServer::Path* HttpServer::find_path(const std::string& path) const {
  if (const auto known = paths_.find(path); known != paths_.end() && !path.ends_with('/'))
    return &known->second;
  for (const auto& [prefix, entry] : paths_) {
    if (prefix.ends_with('/') && path.size() > prefix.size() && path.starts_with(prefix))
      return &entry;
  }
  return nullptr;
}

bool HttpServer::answer_early(const httplib::Request& request, httplib::Response& response) const {
  const Path* const path = find_path(request.path);
  const std::string host = request.get_header_value("Host");
  if (hosts_ && request.has_header("Host") && !hosts_->allow(host)) {
    set_error(response, 421,
              "this server is not " + quote_text(host, 80) +
                  " (expected localhost or the address of --host in the Host header)");
  } else if (path != nullptr && is_preflight(limits_.access, request)) {
    answer_preflight(request, response);
  } else if (request.path != kOpenPath && !has_key(limits_.access, request)) {
    response.set_header("WWW-Authenticate", "Bearer");
    set_error(response, 401,
              "the request has none of this server's API keys (expected the header "
              "\"Authorization: Bearer KEY\", which a client sends if its api_key is KEY)",
              {}, code::kKey);
  } else if (path == nullptr) {
    set_error(response, 404, unknown_path(request.path), {}, code::kNoPath);
  } else if (request.method != path->method &&
             !(path->method == "GET" && request.method == "HEAD")) {
    response.set_header("Allow", path->method);
    set_error(response, 405, "this path takes " + path->method, {}, code::kMethod);
  } else if (path->method == "POST") {
    return refuse_body(request, response);
  } else if (!paths_.contains(request.path)) {
    path->handler(request, {}, response);
  } else {
    return false;
  }
  return true;
}

bool HttpServer::refuse_body(const httplib::Request& request, httplib::Response& response) const {
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
    set_error(response, 411, "the request has no body: it has no Content-Length");
  } else if (!is_json(request.get_header_value("Content-Type"))) {
    set_error(response, 415,
              "the Content-Type is " + quote_text(request.get_header_value("Content-Type"), 80) +
                  " (expected application/json, in UTF-8)");
  } else if (is_compressed(request)) {
    set_error(response, 415,
              "the Content-Encoding is " +
                  quote_text(request.get_header_value("Content-Encoding"), 80) +
                  " (expected a body that is not compressed)");
  } else {
    return false;
  }
  return true;
}

bool HttpServer::answer_one(httplib::Stream& client, Connection* connection, std::string body) {
  current = connection;
  current_body = &body;
  current_note = {};
  current_begin = std::chrono::steady_clock::now();
  bool was_read = false, closes = false;
  const bool answered = process_request(client, draining_, closes, [&](httplib::Request& request) {
    was_read = true;
    drop_authority(request);
    request.headers.erase("Expect");  // already answered when the body was read
    request.ranges.clear();
  });
  current = nullptr;
  current_body = nullptr;
  return answered && was_read && !closes && !draining_;
}

void HttpServer::serve_client(Arrived& arrived) {
  Connection connection(arrived.socket.get(), arrived.request.head, limits_.write_time);
  if (arrived.refusal.status != 0) {
    const std::string text = refusal_text(arrived.refusal);
    connection.write(text.data(), text.size());
    log_request("a request", "that was not read", arrived.refusal.status,
                std::chrono::steady_clock::now(), {});
    return acceptor_.let_go(std::move(arrived.socket));
  }
  if (answer_one(connection, &connection, std::move(arrived.request.body)))
    acceptor_.give_back(std::move(arrived.socket), std::move(arrived.rest));
  else
    acceptor_.let_go(std::move(arrived.socket));
}

void HttpServer::run() {
  set_logger([](const httplib::Request& request, const httplib::Response& response) {
    log_request(request.method, request.path, response.status, current_begin, current_note);
  });
  httplib::ThreadPool threads(limits_.threads);
  threads_ = &threads;
  acceptor_.run(svr_sock_);
  threads.shutdown();
}

void HttpServer::stop_accepting() {
  draining_ = true;
  acceptor_.stop();
}

LogNote& HttpServer::note() { return current_note; }

bool HttpServer::client_left() { return current != nullptr && current->client_left(); }

}  // namespace lft::serve
