#include "src/serve/chat_server.h"

#include <unistd.h>

#include <algorithm>
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
#include "src/serve/chat_request.h"
#include "src/serve/completion_request.h"
#include "src/serve/prompt_length.h"
#include "src/serve/reply.h"
#include "src/serve/send_reply.h"
#include "src/text/chat/named_form.h"

namespace lft::serve {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t new_seed() {
  static thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::vector<std::string> names_of(const std::vector<Variant>& variants) {
  std::vector<std::string> names;
  for (const Variant& variant : variants) names.push_back(variant.name);
  return names;
}

std::vector<ModelEntry> entries_of(const std::vector<Variant>& variants) {
  std::vector<ModelEntry> entries;
  for (const Variant& variant : variants)
    entries.push_back({variant.name, entries.empty() ? "" : variants.front().name});
  return entries;
}

/// A template that does not print tools would drop them without a word.
void check_tools(const data::Row& prompt, const data::EncodeOptions& options) {
  if (prompt.conversation.tools.empty() || text::is_named_form(options.chat->name()) ||
      options.chat->jinja().find("tools") != std::string::npos)
    return;
  throw BadRequest("the chat template of this model has no place for tools", "tools",
                   code::kUnsupported);
}

}  // namespace

ChatServer::ChatServer(const ServedModel& served, ChatServerOptions options)
    : served_(served),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      engine_(served_.engine, options_.engine),
      http_(options_.server) {
  add_model_paths();
  using Read = Asked (ChatServer::*)(const std::string&);
  const auto add = [this](const char* path, Read read) {
    http_.answer(
        "POST", path,
        [this, read](const auto& request, const std::string& body, httplib::Response& response) {
          try {
            answer((this->*read)(body), request.version != "HTTP/1.0", response);
          } catch (const BadRequest& bad) {
            set_error(response, bad);
          } catch (const Error& error) {
            set_error(response, status_of(error), message_of(error));
          }
        });
  };
  add("/v1/chat/completions", &ChatServer::read_chat);
  add("/v1/completions", &ChatServer::read_completion);
}

void ChatServer::add_model_paths() {
  http_.answer("GET", "/health", [](const auto&, const std::string&, httplib::Response& response) {
    response.set_content("{}", "application/json");
  });
  const auto entries =
      std::make_shared<std::vector<ModelEntry>>(entries_of(served_.engine.variants));
  http_.answer("GET", "/v1/models",
               [this, entries](const auto&, const std::string&, httplib::Response& response) {
                 response.set_content(model_list(*entries, started_), "application/json");
               });
  http_.answer(
      "GET", "/v1/models/",
      [this, entries](const auto& request, const std::string&, httplib::Response& response) {
        try {
          const size_t variant = find_variant(request.path.substr(std::strlen("/v1/models/")));
          response.set_content(model_text(entries->at(variant), started_), "application/json");
        } catch (const BadRequest& bad) {
          set_error(response, bad);
        }
      });
}

size_t ChatServer::find_variant(const std::string& name) const {
  const std::vector<Variant>& variants = served_.engine.variants;
  const std::vector<std::string> names = names_of(variants);
  if (name.empty() && variants.size() > 1)
    throw BadRequest("model is missing: this server has " + join(names), "model", code::kMissing);
  const auto found = name.empty() ? names.begin() : std::ranges::find(names, name);
  if (found == names.end())
    throw BadRequest(
        "there is no model " + quote_text(name, 80) + " here; this server has " + join(names),
        "model", code::kNoModel, 404);
  HttpServer::note().model = *found;
  return static_cast<size_t>(found - names.begin());
}

data::Sample ChatServer::encode(data::Row prompt, size_t variant) {
  const data::EncodeOptions& options = *served_.engine.variants[variant].encode;
  check_tools(prompt, options);
  if (text::is_named_form(options.chat->name())) {  // the form has no reasoning, and templates that
    for (text::Message& message : prompt.conversation.messages)  // have one drop it in a history
      message.reasoning.clear();
  }
  const std::lock_guard lock(encoding_);
  std::vector<std::string_view> texts = {prompt.conversation.tools};
  for (const text::Message& message : prompt.messages()) texts.push_back(message.text);
  check_length(texts, /*special=*/false, served_.tokenizer, options.config.text.max_positions,
               "messages");
  try {
    return data::encode_prompt(prompt, served_.tokenizer, options);
  } catch (const Error& error) {
    if (error.info().what != data::kLongPrompt) throw;
    refuse_length(error.info().found + " tokens", options.config.text.max_positions, "messages");
  }
}

data::Sample ChatServer::encode_text(const std::string& text, size_t variant) {
  const data::EncodeOptions& options = *served_.engine.variants[variant].encode;
  const std::lock_guard lock(encoding_);
  check_length({text}, /*special=*/true, served_.tokenizer, options.config.text.max_positions,
               "prompt");
  data::Sample sample;
  for (const text::Token& token : served_.tokenizer.encode(text))
    sample.input_ids.push_back(token.id);
  return sample;
}

void ChatServer::check_room(const std::vector<int64_t>& ids, size_t variant,
                            const std::string& field) const {
  const int64_t most = served_.engine.variants[variant].encode->config.text.max_positions;
  if (std::ssize(ids) < most) return;
  refuse_length(std::to_string(ids.size()) + " tokens", most, field);
}

void ChatServer::check_ids(const std::vector<int64_t>& ids, size_t variant) const {
  const family::ModelConfig& config = served_.engine.variants[variant].encode->config;
  if (ids.empty()) throw BadRequest("the prompt has no tokens", "prompt", code::kValue);
  check_room(ids, variant, "prompt");
  for (const int64_t id : ids) {
    if (id == config.image_token)
      throw BadRequest(
          "the prompt contains the token of an image, and a completion has no images; send them to "
          "/v1/chat/completions",
          "prompt", code::kValue);
    if (id >= config.text.vocab)
      throw BadRequest("the prompt contains the token id " + std::to_string(id) +
                           ", which the model does not have (expected ids below " +
                           std::to_string(config.text.vocab) + ")",
                       "prompt", code::kValue);
  }
}

ChatServer::Asked ChatServer::read_chat(const std::string& body) {
  ChatRequest request = read_chat_request(body);
  Asked asked{.fields = std::move(request.ask)};
  asked.variant = find_variant(asked.fields.model);
  asked.prompts.push_back(
      std::make_shared<const data::Sample>(encode(std::move(request.prompt), asked.variant)));
  check_room(asked.prompts.front()->input_ids, asked.variant, "messages");
  return asked;
}

ChatServer::Asked ChatServer::read_completion(const std::string& body) {
  CompletionRequest request = read_completion_request(body);
  Asked asked{.fields = std::move(request.ask), .is_chat = false};
  asked.variant = find_variant(asked.fields.model);
  for (auto& prompt : request.prompts) {
    data::Sample sample;
    std::string text;
    if (auto* const ids = std::get_if<std::vector<int64_t>>(&prompt)) {
      sample.input_ids = std::move(*ids);
      check_ids(sample.input_ids, asked.variant);
      if (request.echo) text = served_.tokenizer.decode(sample.input_ids, false);
    } else {
      text = std::get<std::string>(prompt);
      sample = encode_text(text, asked.variant);
      check_ids(sample.input_ids, asked.variant);
    }
    sample.id = "request";
    asked.prompts.push_back(std::make_shared<const data::Sample>(std::move(sample)));
    for (int64_t i = 0; request.echo && i < asked.fields.answers; ++i) asked.begins.push_back(text);
  }
  return asked;
}

infer::GenerateOptions ChatServer::draw_options(const AskFields& fields, uint64_t seed) const {
  infer::GenerateOptions options{.max_new_tokens = options_.max_new_tokens,
                                 .temperature = fields.temperature,
                                 .top_p = fields.top_p,
                                 .top_k = fields.top_k,
                                 .repetition_penalty = fields.repetition_penalty,
                                 .seed = seed,
                                 .on_token = {},
                                 .top_scores = fields.top_scores.value_or(0)};
  if (fields.max_tokens > 0)
    options.max_new_tokens = std::min(options.max_new_tokens, fields.max_tokens);
  return options;
}

void ChatServer::answer(const Asked& asked, bool in_chunks, httplib::Response& response) {
  const AskFields& fields = asked.fields;
  const std::string number = std::to_string(started_) + "-" + std::to_string(++requests_);
  ReplyOptions options{.names = {.id = (asked.is_chat ? "chatcmpl-" : "cmpl-") + number,
                                 .model = served_.engine.variants[asked.variant].name,
                                 .created = std::time(nullptr),
                                 .is_chat = asked.is_chat},
                       .scores = fields.top_scores.has_value(),
                       .include_usage = fields.include_usage,
                       .deadline = Clock::now() + options_.answer,
                       .begins = asked.begins};
  std::vector<Draw> draws;
  uint64_t seed = fields.seed ? *fields.seed : new_seed();
  for (const auto& prompt : asked.prompts) {
    options.prompt_tokens += std::ssize(prompt->input_ids);
    for (int64_t i = 0; i < fields.answers; ++i)
      draws.push_back({prompt, draw_options(fields, seed++)});
  }
  HttpServer::note().tokens_in = options.prompt_tokens;
  const auto reply =
      std::make_shared<Reply>(served_.tokenizer, infer::StopStrings(served_.tokenizer, fields.stop),
                              draws.size(), std::move(options));
  const std::shared_ptr<Answers> answers =
      engine_.ask(asked.variant, draws, fields.top_scores.has_value());
  if (!answers) return set_error(response, 429, "too many requests wait already", {}, code::kRate);
  reply->follow(answers);
  if (fields.stream) return send_stream(reply, in_chunks, response);
  send_whole(*reply, response);
}

namespace {

/// Why a server cannot listen on `host`, after a call that failed with errno `code`.
std::string listen_fault(const std::string& host, int code) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE, hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (unknown != 0) return gai_strerror(unknown);
  freeaddrinfo(found);
  return std::strerror(code);
}

}  // namespace

void serve(ChatServer& server, const std::string& host, int port,
           const std::function<void(int port)>& listening) {
  HttpServer& http = server.http();
  const int bound = http.bind(host, port);
  if (bound < 0) {
    refuse(ErrorKind::kResource, "cannot listen there", host + ":" + std::to_string(port),
           listen_fault(host, errno), "an address of this machine and a free port",
           "name another with --host and --port");
  }
  std::thread listener([&] { http.run(); });
  listening(bound);
  while (requested_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  http.stop_accepting();
  listener.join();
}

}  // namespace lft::serve
