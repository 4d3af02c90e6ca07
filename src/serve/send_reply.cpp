#include "src/serve/send_reply.h"

#include <string>
#include <utility>
#include <vector>

#include "src/serve/http_server.h"

namespace lft::serve {
namespace {

void set_error(httplib::Response& response, const Error& error) {
  serve::set_error(response, status_of(error), message_of(error));
}

void note_usage(const Usage& usage) {
  HttpServer::note().tokens_in = usage.prompt_tokens;
  HttpServer::note().tokens_out = usage.completion_tokens;
}

/// Sends the events for some news; false: the client has disconnected.
bool send_news(Reply& reply, const Reply::News& news, httplib::DataSink& sink) {
  const auto say = [&](const std::string& line) {
    const std::string event = "data: " + line + "\n\n";
    return sink.write(event.data(), event.size());
  };
  const ReplyNames& names = reply.options().names;
  if (news.error) {
    httplib::Response error;
    set_error(error, *news.error);
    HttpServer::note().error = "error in the stream";
    if (!say(error.body)) return false;
    sink.done();
    return true;
  }
  for (const Choice& part : news.parts) {
    const bool has_scores = part.scores && !part.scores->empty();
    if ((!part.text.empty() || has_scores) && !say(text_chunk(names, part))) return false;
    if (!part.finish.empty() && !say(finish_chunk(names, part.index, part.finish))) return false;
  }
  if (!reply.ended()) return !HttpServer::client_left();
  if (reply.options().include_usage && !say(usage_chunk(names, reply.usage()))) return false;
  if (!say("[DONE]")) return false;
  sink.done();
  return true;
}

bool send_roles(const Reply& reply, httplib::DataSink& sink) {
  for (size_t index = 0; index < reply.answers(); ++index) {
    const std::string event = "data: " + role_chunk(reply.options().names, index) + "\n\n";
    if (!sink.write(event.data(), event.size())) return false;
  }
  return true;
}

}  // namespace

int status_of(const Error& error) {
  if (error.kind() == ErrorKind::kInput) return 400;
  return error.kind() == ErrorKind::kResource ? 503 : 500;
}

std::string message_of(const Error& error) {
  const ErrorInfo& info = error.info();
  return info.what + (info.found.empty() ? "" : ": " + info.found) +
         (info.expected.empty() ? "" : " (expected " + info.expected + ")");
}

void send_whole(Reply& reply, httplib::Response& response) {
  std::vector<Choice> choices(reply.answers());
  while (!reply.ended()) {
    Reply::News news = reply.next();
    if (news.error) return set_error(response, *news.error);
    for (Choice& part : news.parts) {
      Choice& choice = choices[part.index];
      choice.index = part.index;
      choice.text += part.text;
      choice.finish = part.finish;
      if (!part.scores) continue;
      if (!choice.scores) choice.scores.emplace();
      for (ScoredToken& one : *part.scores) choice.scores->push_back(std::move(one));
    }
    if (!HttpServer::client_left()) continue;
    reply.cancel();
    return serve::set_error(response, 499, "the client has left");
  }
  note_usage(reply.usage());
  response.set_content(whole_reply(reply.options().names, choices, reply.usage()),
                       "application/json");
}

void send_stream(const std::shared_ptr<Reply>& reply, bool in_chunks, httplib::Response& response) {
  const auto begun = std::make_shared<bool>(!reply->options().names.is_chat);  // roles are sent
  const auto provide = [reply, begun](size_t, httplib::DataSink& sink) {
    if (!std::exchange(*begun, true) && !send_roles(*reply, sink)) return false;
    const bool continues = send_news(*reply, reply->next(), sink);
    note_usage(reply->usage());
    return continues;
  };
  const auto release = [reply](bool) { reply->cancel(); };
  response.set_header("Cache-Control", "no-cache");
  if (in_chunks)
    return response.set_chunked_content_provider("text/event-stream", provide, release);
  response.set_content_provider("text/event-stream", provide, release);
}

}  // namespace lft::serve
