// An OpenAI-compatible endpoint for one model: POST /v1/chat/completions, GET /v1/models, GET
// /health. It is meant for trying a model: no authentication, no TLS, one machine.
#pragma once
#include <chrono>
#include <string>

#include "src/serve/engine.h"
#include "src/serve/http_server.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

struct ChatServerOptions {
  std::string name;                  // of the model, in requests and answers
  int64_t max_new_tokens = 1024;     // upper limit for the tokens of an answer
  std::chrono::seconds answer{600};  // upper limit for the time of an answer, from its request on
  EngineLimits engine;
  ServerLimits server;
};

/// The inputs of answers. All must outlive the server, which has sole use of the model.
/// elsewhere.
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
  std::mutex encoding_;  // the images of one prompt are decoded at a time
  Engine engine_;
  HttpServer http_;
};

/// Serves on host:port (0: any free port) until a signal; then it accepts no more requests and
/// finishes all answers, including streams. `listening` gets the port. kResource if the address
/// cannot be used.
void serve(ChatServer& server, const std::string& host, int port,
           const std::function<void(int port)>& listening);

}  // namespace lft::serve
