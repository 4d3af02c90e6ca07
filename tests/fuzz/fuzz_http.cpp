// Client input of `lft serve`: a request line, headers and the body of a chat completion.
#include <cstring>

#include "src/serve/chat_request.h"
#include "src/serve/completion_request.h"
#include "src/serve/http_server.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
namespace {

/// The bytes as a connection that then ends; what is written to it is kept.
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
    expect(!prompt.messages().empty(), "a request has messages");
    size_t marks = 0;
    for (const text::Message& message : prompt.messages()) marks += text::marks_of(message).size();
    expect(marks == prompt.images.size(), "each image has its place in a message");
    expect(prompt.inside.size() == prompt.images.size(), "images come with the request");
    expect(request.ask.stream || !request.ask.include_usage,
           "options of a stream belong to a stream");
    response.set_content("{}", "application/json");
  } catch (const serve::BadRequest& bad) {
    serve::set_error(response, bad);
  }
}

void complete_prompt(const httplib::Request&, const std::string& body,
                     httplib::Response& response) {
  try {
    const serve::CompletionRequest request = serve::read_completion_request(body);
    expect(!request.prompts.empty(), "a request has prompts");
    expect(std::ssize(request.prompts) * request.ask.answers <= serve::kMostAnswers,
           "the number of answers is limited");
    response.set_content("{}", "application/json");
  } catch (const serve::BadRequest& bad) {
    serve::set_error(response, bad);
  }
}

}  // namespace

bool http(std::string_view bytes) {
  static serve::HttpServer server(serve::ServerLimits{});
  static const bool ready = [] {
    server.answer("POST", "/v1/chat/completions", complete);
    server.answer("POST", "/v1/completions", complete_prompt);
    server.answer("GET", "/v1/models/", [](const auto&, const std::string&, auto& response) {
      response.set_content("{}", "application/json");
    });
    return true;
  }();
  serve::RequestFrame frame({.body_bytes = 64u << 10});
  std::string sent(bytes);
  // Arrival in parts: first a part, then all. The result of framing must not depend on it.
  frame.look(bytes.substr(0, bytes.size() / 2));
  const serve::RequestFrame::State state = frame.look(bytes);
  serve::RequestFrame whole({.body_bytes = 64u << 10});
  expect(state == whole.look(bytes), "a request ends in one place");
  if (state == serve::RequestFrame::State::kMore) return false;
  if (state == serve::RequestFrame::State::kRefused) {
    expect(frame.refusal().status / 100 == 4 && !frame.refusal().message.empty(),
           "a refusal says why");
    return false;
  }
  serve::FramedRequest request = frame.take_from(sent);
  expect(sent.size() + request.head.size() + request.body.size() <= bytes.size(),
         "no byte is in two places");
  MemoryStream client(request.head);
  if (ready) server.answer_one(client, nullptr, std::move(request.body));
  const std::string_view said = client.written;
  const auto of_kind = [&](char hundreds) {
    return said.size() > 9 && said.starts_with("HTTP/1.1 ") && said[9] == hundreds;
  };
  expect(of_kind('2') || of_kind('4'), "an answer or a refusal: " + std::string(said));
  return of_kind('2');
}

}  // namespace lft::fuzz
