// An OpenAI-compatible endpoint for a model and its adapters: POST /v1/chat/completions, POST
// /v1/completions, GET /v1/models, GET /v1/models/{id}, GET /health. It is meant for trying a
// model: no TLS, one machine.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/data/rows/row.h"
#include "src/serve/ask_fields.h"
#include "src/serve/engine.h"
#include "src/serve/http_server.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

struct ChatServerOptions {
  int64_t max_new_tokens = 1024;     // upper limit for the tokens of an answer
  std::chrono::seconds answer{600};  // upper limit for the time of an answer, from its request on
  EngineLimits engine;
  ServerLimits server;
};

/// The inputs of answers. All must outlive the server, which has sole use of the model. The first
/// variant is the base if there are several.
struct ServedModel {
  EngineModel engine;
  const text::Tokenizer& tokenizer;
};

class ChatServer {
 public:
  ChatServer(const ServedModel& served, ChatServerOptions options);
  HttpServer& http() { return http_; }

 private:
  using Samples = std::vector<std::shared_ptr<const data::Sample>>;
  struct Asked {
    AskFields fields;
    Samples prompts = {};
    std::vector<std::string> begins = {};  // of each answer
    bool is_chat = true;
    size_t variant = 0;
  };

  void add_model_paths();
  /// The variant of this name; throws BadRequest.
  size_t find_variant(const std::string& name) const;
  Asked read_chat(const std::string& body);
  Asked read_completion(const std::string& body);
  void answer(const Asked& asked, bool in_chunks, httplib::Response& response);
  data::Sample encode(data::Row prompt, size_t variant);
  data::Sample encode_text(const std::string& text, size_t variant);
  void check_room(const std::vector<int64_t>& ids, size_t variant, const std::string& field) const;
  void check_ids(const std::vector<int64_t>& ids, size_t variant) const;
  infer::GenerateOptions draw_options(const AskFields& fields, uint64_t seed) const;

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
