// An OpenAI-compatible endpoint for one model: POST /v1/chat/completions, GET /v1/models, GET
// /health. For trying a model out: no authentication, no TLS, one machine.
#pragma once
#include <chrono>
#include <string>

#include "src/serve/engine.h"
#include "src/serve/http_server.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

struct ChatServerOptions {
  std::string name;                  // of the model, in requests and answers
  int64_t max_new_tokens = 1024;     // of an answer, whatever a request asks for
  std::chrono::seconds answer{600};  // of an answer, from its request on
  EngineLimits engine;
  ServerLimits server;
};

/// What answers come from; all must outlive the server, and nobody else uses the model meanwhile.
struct ServedModel {
  family::Model& model;
  const text::Tokenizer& tokenizer;
  const data::EncodeOptions& encode;
  at::ScalarType compute;
};

class ChatServer {
 public:
  ChatServer(const ServedModel& served, ChatServerOptions options);
  HttpServer& http() { return http_; }

 private:
  void complete(const std::string& body, bool in_chunks, httplib::Response& response);
  data::Sample encode(data::Row prompt);

  const ServedModel served_;
  const ChatServerOptions options_;
  const int64_t started_;  // seconds since 1970
  std::atomic<int64_t> requests_ = 0;
  std::mutex encoding_;  // one prompt's images are decoded at a time
  Engine engine_;
  HttpServer http_;
};

/// Serves on host:port (0: any free one) until a signal came; then takes no more requests and
/// finishes the answers of those that it has, streams too. `listening` gets the port. kResource
/// where the address cannot be had.
void serve(ChatServer& server, const std::string& host, int port,
           const std::function<void(int port)>& listening);

}  // namespace lft::serve
