#include "src/serve/chat_server.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>
#include <utility>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/encode.h"
#include "src/infer/answer_text.h"
#include "src/serve/chat_reply.h"
#include "src/serve/chat_request.h"
#include "src/serve/prompt_length.h"
#include "src/text/chat/named_form.h"

namespace lft::serve {
namespace {

using Clock = std::chrono::steady_clock;

/// An answer that is sent to its client.
struct Reply {
  std::shared_ptr<Answer> answer;
  infer::AnswerText text;
  ReplyNames names;
  int64_t prompt_tokens = 0;
  int64_t end_tokens = 0;  // 1 if the answer has ended with an end token
  bool include_usage = false;
  Clock::time_point deadline;
  bool begun = false;  // in a stream: the role has been sent
};

/// New parts of an answer.
struct Piece {
  std::string text;
  std::string finish;          // "stop" or "length" in the last part, otherwise empty
  std::optional<Error> error;  // instead
};

/// Waits for the next part of an answer, with a timeout.
Piece next_piece(Reply& reply) {
  const Answer::Update update = reply.answer->wait(std::chrono::milliseconds(250));
  Piece piece;
  for (const int64_t id : update.ids) {
    if (!reply.text.ended()) piece.text += reply.text.add(id);
  }
  if (reply.text.ended()) {  // the engine has no text and may have sampled more
    reply.answer->cancel();
    piece.text += reply.text.finish();
    piece.finish = "stop";
  } else if (update.error) {
    piece.error = update.error;
  } else if (update.ended) {
    piece.text += reply.text.finish();
    piece.finish = update.by_limit ? "length" : "stop";
    reply.end_tokens = update.by_end_token ? 1 : 0;
  } else if (Clock::now() > reply.deadline) {
    reply.answer->cancel();
    piece.error = Error(ErrorKind::kResource, "the answer took too long");
  }
  return piece;
}

int status_of(const Error& error) {
  if (error.kind() == ErrorKind::kInput) return 400;
  return error.kind() == ErrorKind::kResource ? 503 : 500;
}

Usage usage_of(const Reply& reply) {
  return {.prompt_tokens = reply.prompt_tokens,
          .completion_tokens = reply.text.tokens() + reply.end_tokens};
}

void answer_whole(Reply reply, httplib::Response& response) {
  std::string text;
  for (;;) {
    const Piece piece = next_piece(reply);
    text += piece.text;
    if (piece.error) return set_error(response, status_of(*piece.error), message_of(*piece.error));
    if (!piece.finish.empty()) {
      response.set_content(whole_reply(reply.names, text, piece.finish, usage_of(reply)),
                           "application/json");
      return;
    }
    if (HttpServer::client_left()) {
      reply.answer->cancel();
      return set_error(response, 499, "the client has left");
    }
  }
}

/// Sends server-sent events; false: the client has disconnected.
bool stream_piece(Reply& reply, httplib::DataSink& sink) {
  const auto say = [&](const std::string& line) {
    const std::string event = "data: " + line + "\n\n";
    return sink.write(event.data(), event.size());
  };
  if (!std::exchange(reply.begun, true) && !say(first_chunk(reply.names))) return false;
  const Piece piece = next_piece(reply);
  if (piece.error) {
    httplib::Response error;
    set_error(error, status_of(*piece.error), message_of(*piece.error));
    if (!say(error.body)) return false;
    sink.done();
    return true;
  }
  if (!piece.text.empty() && !say(text_chunk(reply.names, piece.text))) return false;
  if (piece.finish.empty()) return !HttpServer::client_left();
  if (!say(last_chunk(reply.names, piece.finish))) return false;
  if (reply.include_usage && !say(usage_chunk(reply.names, usage_of(reply)))) return false;
  if (!say("[DONE]")) return false;
  sink.done();
  return true;
}

/// Chunked, except for HTTP/1.0, where the end of the connection is the end.
void answer_in_pieces(Reply reply, bool in_chunks, httplib::Response& response) {
  const auto held = std::make_shared<Reply>(std::move(reply));
  const auto provide = [held](size_t, httplib::DataSink& sink) {
    return stream_piece(*held, sink);
  };
  const auto release = [held](bool) { held->answer->cancel(); };
  response.set_header("Cache-Control", "no-cache");
  if (in_chunks)
    return response.set_chunked_content_provider("text/event-stream", provide, release);
  response.set_content_provider("text/event-stream", provide, release);
}

uint64_t new_seed() {
  static thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

ChatServer::ChatServer(const ServedModel& served, ChatServerOptions options)
    : served_(served),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      engine_(served_.model, served_.encode, served_.compute, options_.engine),
      http_(options_.server) {
  http_.answer("GET", "/health", [](const auto&, const std::string&, httplib::Response& response) {
    response.set_content("{}", "application/json");
  });
  http_.answer("GET", "/v1/models",
               [this](const auto&, const std::string&, httplib::Response& response) {
                 response.set_content(model_list(options_.name, started_), "application/json");
               });
  http_.answer("POST", "/v1/chat/completions",
               [this](const auto& request, const std::string& body, httplib::Response& response) {
                 complete(body, request.version != "HTTP/1.0", response);
               });
}

data::Sample ChatServer::encode(data::Row prompt) {
  const data::EncodeOptions& options = served_.encode;
  if (text::is_named_form(options.chat->name())) {  // the form has no reasoning, and templates that
    for (text::Message& message : prompt.conversation.messages)  // have one drop it in a history
      message.reasoning.clear();
  }
  const std::lock_guard lock(encoding_);
  check_length(prompt.conversation, served_.tokenizer, options.config.text.max_positions);
  return data::encode_prompt(prompt, served_.tokenizer, options);
}

void ChatServer::complete(const std::string& body, bool in_chunks, httplib::Response& response) {
  try {
    ChatRequest request = read_chat_request(body);
    if (!request.model.empty() && request.model != options_.name)
      return set_error(response, 404,
                       "there is no model " + quote_text(request.model, 80) +
                           " here; this server has " + options_.name,
                       "model");
    data::Sample prompt = encode(std::move(request.prompt));
    Reply reply{
        .answer = nullptr,
        .text = infer::AnswerText(served_.tokenizer,
                                  infer::StopStrings(served_.tokenizer, request.stop)),
        .names = {.id = "chatcmpl-" + std::to_string(started_) + "-" + std::to_string(++requests_),
                  .model = options_.name,
                  .created = std::time(nullptr)},
        .prompt_tokens = static_cast<int64_t>(prompt.input_ids.size()),
        .include_usage = request.include_usage,
        .deadline = Clock::now() + options_.answer};
    infer::GenerateOptions draw{.max_new_tokens = options_.max_new_tokens,
                                .temperature = request.temperature,
                                .top_p = request.top_p,
                                .top_k = request.top_k,
                                .repetition_penalty = request.repetition_penalty,
                                .seed = request.seed ? *request.seed : new_seed(),
                                .on_token = {}};
    if (request.max_tokens > 0)
      draw.max_new_tokens = std::min(draw.max_new_tokens, request.max_tokens);
    reply.answer = engine_.ask(std::move(prompt), std::move(draw));
    if (!reply.answer) return set_error(response, 429, "too many requests wait already");
    if (request.stream) return answer_in_pieces(std::move(reply), in_chunks, response);
    answer_whole(std::move(reply), response);
  } catch (const BadRequest& bad) {
    set_error(response, 400, bad.what(), bad.field);
  } catch (const Error& error) {
    set_error(response, status_of(error), message_of(error));
  }
}

void serve(ChatServer& server, const std::string& host, int port,
           const std::function<void(int port)>& listening) {
  HttpServer& http = server.http();
  const int bound = http.bind(host, port);
  if (bound < 0) {
    refuse(ErrorKind::kResource, "cannot listen there", host + ":" + std::to_string(port),
           std::strerror(errno), "an address of this machine and a port that nobody listens on",
           "name another with --host and --port");
  }
  std::thread listener([&] { http.run(); });
  listening(bound);
  while (requested_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  http.stop_accepting();
  listener.join();
}

}  // namespace lft::serve
