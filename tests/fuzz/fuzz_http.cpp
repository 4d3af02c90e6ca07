// What a client sends to `lft serve`: a request line, headers and the body of a chat completion.
#include <cstring>

#include "src/serve/chat_request.h"
#include "src/serve/http_server.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
namespace {

/// The bytes as a connection that ends with them; what is written to it is kept.
class MemoryStream : public httplib::Stream {
 public:
  explicit MemoryStream(std::string_view bytes) : bytes_(bytes) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t given = std::min(size, bytes_.size());
    std::memcpy(to, bytes_.data(), given);
    bytes_.remove_prefix(given);
    return static_cast<ssize_t>(given);
  }
  ssize_t write(const char* from, size_t size) override {
    written.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const {}  // virtual from cpp-httplib 0.11.4 on
  socket_t socket() const override { return -1; }
  std::string written;

 private:
  std::string_view bytes_;
};

void complete(const httplib::Request&, const std::string& body, httplib::Response& response) {
  try {
    const serve::ChatRequest request = serve::read_chat_request(body);
    const data::Row& prompt = request.prompt;
    expect(!prompt.turns().empty() && prompt.turns().back().answer.empty(),
           "a request ends with a question");
    expect(request.stop.size() <= 4, "no more than 4 stop texts");
    expect(prompt.inside.size() == prompt.images.size(), "images come with the request");
    response.set_content("{}", "application/json");
  } catch (const serve::BadRequest& bad) {
    serve::set_error(response, 400, bad.what(), bad.field);
  }
}

}  // namespace

bool http(std::string_view bytes) {
  static serve::HttpServer server(serve::ServerLimits{.connection = {}, .body_bytes = 64u << 10});
  static const bool ready = [] {
    server.answer("POST", "/v1/chat/completions", complete);
    return true;
  }();
  MemoryStream client(bytes);
  if (ready) server.take(client, nullptr);
  std::string_view said = client.written;
  if (said.starts_with("HTTP/1.1 100 Continue\r\n\r\n")) said.remove_prefix(25);
  const auto of_kind = [&](char hundreds) {
    return said.size() > 9 && said.starts_with("HTTP/1.1 ") && said[9] == hundreds;
  };
  expect(said.empty() || of_kind('2') || of_kind('4'),
         "an answer or a refusal: " + std::string(said));
  return of_kind('2');
}

}  // namespace lft::fuzz
